package client

import (
	"context"
	"strings"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// TrafficEntry is a message at one of the two borders.
type TrafficEntry = devproxyv1.TrafficEntry

// TrafficOptions says which messages are wanted.
type TrafficOptions struct {
	// Session is a number; 0 means all.
	Session uint64
	// Method is a name in which "*" stands for any text, wanted with its
	// responses; empty means all.
	Method string
	// MaxBody is how many bytes of each are wanted; 0 means all.
	MaxBody uint32
	// ShowSecrets shows text that looks secret.
	ShowSecrets bool
}

// Traffic calls ready once it sees the messages that pass, and then entry with
// each and its body. It goes on until the context ends or somebody stops the
// daemon, which are no errors, or until entry fails or the connection breaks.
func (c *Client) Traffic(ctx context.Context, o TrafficOptions, ready func(), entry func(e *TrafficEntry, body []byte) error) error {
	stream, err := c.Control().StreamTraffic(ctx, &devproxyv1.StreamTrafficRequest{
		Session: o.Session, Method: o.Method, MaxBody: o.MaxBody, ShowSecrets: o.ShowSecrets,
	})
	begun := false
	var now *TrafficEntry
	var body []byte
	return receiveAll(ctx, stream, err, "tracing the traffic", func(r *devproxyv1.StreamTrafficResponse) error {
		if !begun { // the first response says that it sees
			begun = true
			ready()
			return nil
		}
		if r.GetEntry() != nil {
			now, body = r.GetEntry(), nil
		}
		body = append(body, r.GetBody()...)
		if !r.GetLast() {
			return nil
		}
		return entry(now, body)
	})
}

// DirectionName is the direction's name, such as "from-client".
func DirectionName(d devproxyv1.TrafficDirection) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(d.String(), "TRAFFIC_DIRECTION_")), "_", "-")
}

// KindName is the kind's name, such as "request".
func KindName(k devproxyv1.TrafficKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "TRAFFIC_KIND_"))
}
