package daemon

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/daemon/traffic"
	"github.com/debugmcp/devproxy/internal/wire"
)

func toTrafficEntry(e traffic.Entry, client string) *devproxyv1.TrafficEntry {
	entry := &devproxyv1.TrafficEntry{
		Time: toTime(e.Time), Session: e.Session, ClientName: client, Generation: e.Generation,
		Method: valid(e.Method, maxText), Id: valid(string(e.ID), maxText), ErrorCode: e.Code, Size: uint64(len(e.Frame)),
		Direction: directions[e.Direction], Kind: kinds[e.Kind],
	}
	if e.Era != era.None {
		entry.ProtocolEra = e.Era.String()
	}
	if e.Answers {
		entry.Latency = durationpb.New(e.Latency)
	}
	return entry
}

var directions = map[relay.Direction]devproxyv1.TrafficDirection{
	relay.FromClient:  devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_FROM_CLIENT,
	relay.ToClient:    devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_TO_CLIENT,
	relay.ToBackend:   devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_TO_BACKEND,
	relay.FromBackend: devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_FROM_BACKEND,
}

var kinds = map[wire.Kind]devproxyv1.TrafficKind{
	0:                 devproxyv1.TrafficKind_TRAFFIC_KIND_INVALID,
	wire.Request:      devproxyv1.TrafficKind_TRAFFIC_KIND_REQUEST,
	wire.Notification: devproxyv1.TrafficKind_TRAFFIC_KIND_NOTIFICATION,
	wire.Response:     devproxyv1.TrafficKind_TRAFFIC_KIND_RESULT,
	wire.Failure:      devproxyv1.TrafficKind_TRAFFIC_KIND_ERROR,
}

// beyondCut is how much more than is shown of a long message is looked at for
// secrets: one that begins before the cut ends before this.
const beyondCut = 64 << 10

// frame is a message with its secrets hidden, cut to limit bytes unless that is
// 0.
func (m masking) frame(frame []byte, limit int) []byte {
	cut := func(frame []byte) []byte {
		if limit > 0 && len(frame) > limit {
			return []byte(strings.ToValidUTF8(string(frame[:limit]), ""))
		}
		return frame
	}
	switch {
	case m.show:
		return cut(frame)
	case limit > 0 && len(frame) > limit+beyondCut:
		return cut([]byte(m.masker.Mask(string(frame[:limit+beyondCut]))))
	}
	return cut(m.masker.MaskJSON(frame))
}
