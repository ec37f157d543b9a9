package shim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/wire"
)

// record is what daemons got, over all of their lives.
type record struct {
	mu  sync.Mutex
	got map[wire.ID]int
}

// TestEveryRequestIsAnsweredOnce plays random conversations over daemons that
// are killed, restarted and missing, and counts.
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, false, func(w *world) { converse(w, rand.New(rand.NewPCG(7, uint64(seed)))) })
		})
	}
}

func converse(w *world, random *rand.Rand) {
	methods := []string{
		"tools/list", "tools/call", "resources/read", "prompts/get", "ping", "server/discover",
		"logging/setLevel", "resources/subscribe", "vendor/x",
	}
	got := &record{got: map[wire.ID]int{}}
	var daemons sync.WaitGroup
	asked, cancelled := map[wire.ID]string{}, map[wire.ID]bool{}
	alive := false
	for step := range 200 {
		switch n := random.IntN(20); {
		case n < 12:
			id, method := wire.ID(fmt.Sprint(step)), methods[random.IntN(len(methods))]
			asked[id] = method
			w.write(request(id, method, `{"name":"a","uri":"a:`+fmt.Sprint(step%3)+`"}`))
		case n < 13:
			for id := range asked {
				if !cancelled[id] {
					cancelled[id] = true
					w.write(note("notifications/cancelled", `{"requestId":`+string(id)+`}`))
					break
				}
			}
		case n < 15:
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		case n < 16:
			synctest.Wait()
		case alive:
			alive = false
			w.kill()
		default:
			alive = true
			d := w.start()
			delays := rand.New(rand.NewPCG(random.Uint64(), 1))
			daemons.Go(func() { d.answerAll(got, delays) })
		}
	}
	if !alive {
		d := w.start()
		daemons.Go(func() { d.answerAll(got, random) })
	}
	time.Sleep(time.Minute)
	answers := w.answers()
	for id, method := range asked {
		if n := got.got[id]; n > mostDeliveries(method) {
			w.t.Errorf("%s %s went to a daemon %d times", method, id, n)
		}
		if n := answers[id]; n != 1 && (!cancelled[id] || n > 1) {
			w.t.Errorf("%s %s (cancelled: %v) has %d answers", method, id, cancelled[id], n)
		}
	}
	w.kill()
	daemons.Wait()
}

// mostDeliveries is how often a request of the method may go to a daemon.
func mostDeliveries(method string) int {
	switch method {
	case "tools/list", "resources/read":
		return 2
	case "server/discover":
		return math.MaxInt
	}
	return 1
}

// answers counts the answers that the client has got, by id.
func (w *world) answers() map[wire.ID]int {
	w.t.Helper()
	counts := map[wire.ID]int{}
	synctest.Wait()
	for len(w.lines) > 0 {
		text := <-w.lines
		m, err := wire.Parse([]byte(text))
		if err != nil {
			w.t.Errorf("the client got %s: %v", text, err)
		}
		if strings.HasPrefix(string(m.ID), `"`+mintedPrefix) {
			w.t.Errorf("the client got %s", text)
		}
		if m.Kind == wire.Response || m.Kind == wire.Failure {
			counts[m.ID]++
		}
	}
	return counts
}

// answerAll answers every request after a while, until the daemon is killed.
func (d *fakeDaemon) answerAll(got *record, random *rand.Rand) {
	var attachments sync.WaitGroup
	defer attachments.Wait()
	for {
		select {
		case a := <-d.attached:
			delays := rand.New(rand.NewPCG(random.Uint64(), 2))
			attachments.Go(func() { a.answerAll(got, delays) })
		case <-d.over:
			return
		}
	}
}

func (a *attachment) answerAll(got *record, random *rand.Rand) {
	for {
		select {
		case frame, open := <-a.frames:
			if !open {
				a.close(devproxyv1.CloseReason_CLOSE_REASON_DONE)
				return
			}
			if m, err := wire.Parse([]byte(frame)); err == nil && m.Kind == wire.Request {
				got.mu.Lock()
				got.got[m.ID]++
				got.mu.Unlock()
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				a.tell(response(m.ID, `{}`))
			}
			// What was read by now is answered, so the second one is truthful too.
			switch random.IntN(100) {
			case 0:
				a.close(devproxyv1.CloseReason_CLOSE_REASON_RESTART)
				return
			case 1:
				a.handOver()
				return
			}
		case <-a.done:
			return
		}
	}
}
