package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/wire"
)

func TestBytesPassAsTheyAre(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		up := []string{
			initialize,
			`{ "jsonrpc":"2.0" , "id":9007199254740993, "method":"x/y", "params":{"n":1.0,"s":"\u00e9<>&","x":[]}, "extra":1}`,
			`{"jsonrpc":"2.0","id":"a\u0062","method":"tools/call","params":{"name":"t"}}`,
			note("vendor/odd", `{"a":12345678901234567890}`),
			response(`"d-1"`, `{"ok":true}`),
			`not json`, `{"jsonrpc":"2.0","id":5}`, `"text"`,
		}
		w.write(up...)
		a.expect(up...)
		down := []string{
			response(9007199254740993, `{"z":1.50,"a":"\u2028"}`),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`,
			note("notifications/message", `{"level":"info"}`),
			`{"jsonrpc":"2.0","id":"d-2","method":"roots/list"}`,
		}
		a.tell(down...)
		w.expect(down...)
	})
}

func TestHelloGoesFirst(t *testing.T) {
	inWorld(t, true, func(w *world) {
		hello := w.accept().hello
		if hello.GetContract() != client.Contract || hello.GetVersion() != "test" ||
			hello.GetPid() != int64(os.Getpid()) || hello.GetResumed() {
			t.Errorf("hello %v", hello)
		}
		if got := string(hello.GetEnvironmentDigests()["TOKEN"]); got != string(client.EnvironmentDigest("x")) {
			t.Errorf("digest %x", got)
		}
	})
}

// What may be asked twice is sent at once; the rest waits for a daemon that
// welcomes the client, so that one which ends before has not got it.
func TestFirstFramesNeedNoWelcome(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.start(func(d *fakeDaemon) { d.welcome = nil })
		list, call := request(1, "tools/list", ""), request(2, "tools/call", `{"name":"a"}`)
		w.write(initialize, list, call, initialized)
		a := w.accept()
		a.expect(initialize, list)
		a.quiet()
		a.end(status.Error(codes.Unavailable, "it ends"))
		w.kill()
		w.quiet()
		w.start()
		b := w.accept()
		b.expect(initialize, list, call, initialized)
		b.quiet()
		w.quiet()
	})
}

// A daemon that never welcomes a client is as good as none.
func TestWaitForTheWelcomeIsBounded(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.start(func(d *fakeDaemon) { d.welcome = nil })
		w.write(request(1, "tools/call", `{"name":"a"}`))
		began := time.Now()
		w.next(`"id":1,"result"`, "cannot be reached", `"isError":true`)
		if waited := time.Since(began); waited < heldWait || waited > heldWait+time.Second {
			t.Errorf("waited %s, want %s", waited, heldWait)
		}
	})
}

func TestLargeMessagesAreCut(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		large := request(1, "tools/call", `{"name":"`+strings.Repeat("x", 5<<20)+`"}`)
		w.write(large)
		a.expect(large)
		total := 0
		for total < len(large) {
			size := <-a.chunks
			total += size
			if size > client.ChunkSize {
				t.Fatalf("a chunk of %d bytes", size)
			}
		}
		answer := response(1, `"`+strings.Repeat("y", 4<<20)+`"`)
		a.tell(answer)
		w.expect(answer)
	})
}

// What is in flight when the daemon is lost is either sent again or answered,
// never both.
func TestInFlightAtALoss(t *testing.T) {
	const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	tests := []struct {
		name, method, params string
		again                bool
		answer               []string // parts of it, if it is not sent again
	}{
		{"tools/list", "tools/list", "", true, nil},
		{"prompts/list", "prompts/list", `{"cursor":"a"}`, true, nil},
		{"resources/list", "resources/list", "", true, nil},
		{"templates", "resources/templates/list", "", true, nil},
		{"read", "resources/read", `{"uri":"a:b"}`, true, nil},
		{"discover", "server/discover", `{` + modern + `}`, true, nil},
		{"listen", "subscriptions/listen", `{"notifications":{},` + modern + `}`, true, nil},
		{"read with answers", "resources/read", `{"uri":"a:b","inputResponses":{}}`, false,
			[]string{`"error":{"code":-31950`, `"reason":"daemon-lost"`, `"hint":`}},
		{"ping", "ping", "", false, []string{`{"jsonrpc":"2.0","id":1,"result":{}}`}},
		{"legacy call", "tools/call", `{"name":"a"}`, false,
			[]string{`"id":1,"result":{"content":[{"type":"text","text":"the devproxy daemon ended`, `"isError":true}`}},
		{"modern call", "tools/call", `{"name":"a",` + modern + `}`, false,
			[]string{`"result":{"resultType":"complete","content":`, `"isError":true}`}},
		{"prompt", "prompts/get", `{"name":"a"}`, false, []string{`"code":-31950`}},
		{"level", "logging/setLevel", `{"level":"info"}`, false, []string{`"code":-31950`}},
		{"unknown", "vendor/x", "", false, []string{`"code":-31950`}},
		{"too large to keep", "resources/read", `{"uri":"` + strings.Repeat("u", maxKeptBody) + `"}`, false,
			[]string{`"code":-31950`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, true, func(w *world) {
				a := w.accept()
				asked := request(1, test.method, test.params)
				w.write(asked)
				a.expect(asked)
				w.kill()
				if !test.again {
					began := time.Now()
					w.next(test.answer...)
					if took := time.Since(began); took > time.Second {
						t.Errorf("answered after %s", took)
					}
					w.start()
					w.accept().quiet()
					w.quiet()
					return
				}
				w.start()
				b := w.accept()
				if !b.hello.GetResumed() {
					t.Error("the hello does not say that the session is resumed")
				}
				b.expect(asked)
				answer := response(1, `{"tools":[]}`)
				b.tell(answer)
				w.expect(answer)
				w.quiet()
			})
		})
	}
}

func TestSafeRequestsAreSentAgainOnce(t *testing.T) {
	inWorld(t, true, func(w *world) {
		list, listen := request(1, "tools/list", ""), request(2, "subscriptions/listen", `{"notifications":{}}`)
		a := w.accept()
		w.write(list, listen)
		a.expect(list, listen)
		w.kill()
		w.start()
		w.accept().expect(list, listen)
		w.kill()
		w.next(`"id":1,"error":{"code":-31950`)
		w.start()
		b := w.accept()
		b.expect(listen)
		b.quiet()
		w.quiet()
	})
}

func TestLegacySessionIsResumed(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		w.handshake(a)
		state := []struct{ asked, answer string }{
			{request(1, "logging/setLevel", `{"level":"debug"}`), response(1, `{}`)},
			{request(2, "logging/setLevel", `{"level":"error"}`), response(2, `{}`)},
			{request(3, "resources/subscribe", `{"uri":"a:1"}`), response(3, `{}`)},
			{request(4, "resources/subscribe", `{"uri":"a:2"}`), response(4, `{}`)},
			{request(5, "resources/subscribe", `{"uri":"a:3"}`), `{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"no"}}`},
			{request(6, "resources/unsubscribe", `{"uri":"a:1"}`), response(6, `{}`)},
			{request(7, "logging/setLevel", `{"level":"odd"}`), `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no"}}`},
		}
		for _, s := range state {
			w.write(s.asked)
			a.expect(s.asked)
			a.tell(s.answer)
			w.expect(s.answer)
		}
		replay := func(first int) []string {
			mint := func(n int) string { return fmt.Sprintf(`"devproxy-shim:%d"`, first+n) }
			return []string{
				request(mint(0), "initialize", `{"protocolVersion":"2025-11-25","capabilities":{}}`),
				initialized,
				request(mint(1), "logging/setLevel", `{"level":"error"}`),
				request(mint(2), "resources/subscribe", `{"uri":"a:2"}`),
			}
		}
		list := request(8, "tools/list", "")
		w.write(list)
		a.expect(list)
		for _, first := range []int{1, 4} {
			w.kill()
			w.start()
			a = w.accept()
			a.expect(replay(first)...)
			if first == 1 {
				a.expect(list)
				a.tell(response(8, `{}`))
				w.expect(response(8, `{}`))
			}
			a.tell(response(fmt.Sprintf(`"devproxy-shim:%d"`, first), `{"protocolVersion":"2025-11-25"}`))
			a.tell(fmt.Sprintf(`{"jsonrpc":"2.0","id":"devproxy-shim:%d","error":{"code":1,"message":"gone"}}`, first+2))
			a.quiet()
			w.quiet()
		}
		if !strings.Contains(w.stderr.String(), `gone`) {
			t.Errorf("stderr says nothing of the failed replay: %s", w.stderr)
		}
	})
}

func TestInitializeInFlightIsAnsweredOnce(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		list := request(1, "tools/list", "")
		w.write(initialize, initialized, list)
		a.expect(initialize, initialized, list)
		w.kill()
		w.start()
		b := w.accept()
		b.expect(initialize, initialized, list)
		b.quiet()
		b.tell(response(0, `{"protocolVersion":"2025-11-25"}`), response(1, `{}`))
		w.expect(response(0, `{"protocolVersion":"2025-11-25"}`), response(1, `{}`))
		w.quiet()
	})
}

func TestListensSurvive(t *testing.T) {
	ack := func(id string) string {
		return note("notifications/subscriptions/acknowledged",
			`{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`}}`)
	}
	listen := func(id string) string { return request(id, "subscriptions/listen", `{"notifications":{}}`) }
	inWorld(t, true, func(w *world) {
		a := w.accept()
		all := []string{listen(`"listen:0"`), listen("1"), listen("2"), listen("3")}
		w.write(all...)
		a.expect(all...)
		a.tell(ack(`"listen:0"`), ack("2"), ack("3"), response(3, `{"resultType":"complete"}`))
		w.expect(ack(`"listen:0"`), ack("2"), ack("3"), response(3, `{"resultType":"complete"}`))
		cancel := note("notifications/cancelled", `{"requestId":2}`)
		w.write(cancel)
		a.expect(cancel)
		for range 2 {
			w.kill()
			w.start()
			a = w.accept()
			a.expect(all[:2]...)
			a.quiet()
			a.tell(ack(`"listen:0"`))
			w.quiet()
		}
		a.tell(ack("1"))
		w.expect(ack("1"))
		changed := note("notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`)
		a.tell(changed)
		w.expect(changed)

		// Cancelled while it is being asked for again: of that the client hears nothing.
		w.kill()
		w.start()
		a = w.accept()
		a.expect(all[:2]...)
		cancel = note("notifications/cancelled", `{"requestId":1}`)
		w.write(cancel)
		a.expect(cancel)
		a.tell(ack(`"listen:0"`), ack("1"))
		w.quiet()
	})
}

func TestQuestionsOfALostDaemonAreCancelled(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		w.handshake(a)
		asked := []string{
			request(`"n:1"`, "elicitation/create", `{}`), request(`"n:2"`, "roots/list", ""),
			request(`"n:3"`, "sampling/createMessage", `{}`),
		}
		a.tell(asked...)
		w.expect(asked...)
		w.write(response(`"n:2"`, `{"roots":[]}`))
		a.expect(response(`"n:2"`, `{"roots":[]}`))
		taken := note("notifications/cancelled", `{"requestId":"n:3"}`)
		a.tell(taken)
		w.expect(taken)
		w.kill()
		w.next(`"method":"notifications/cancelled","params":{"requestId":"n:1","reason":"the devproxy daemon`)
		w.write(response(`"n:1"`, `{"action":"cancel"}`)) // in vain
		w.start()
		b := w.accept()
		b.expect(request(`"devproxy-shim:1"`, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{}}`), initialized)
		b.quiet()
		w.quiet()
	})
}

func TestCancelledRequestsAreNotAnswered(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		call := request(1, "tools/call", `{"name":"a"}`)
		cancel := note("notifications/cancelled", `{"requestId":1}`)
		w.write(call)
		a.expect(call)
		w.write(cancel)
		a.expect(cancel)
		w.kill()
		w.quiet()
		// One that waits for a daemon is taken back, and no daemon hears of it; one of
		// a batch goes with the rest, and the daemon has to hear that it is not wanted.
		batch := `[` + request(3, "tools/call", `{"name":"a"}`) + `,` + request(4, "tools/list", "") + `]`
		cancel = note("notifications/cancelled", `{"requestId":3}`)
		w.write(request(2, "tools/list", ""), batch, note("notifications/cancelled", `{"requestId":2}`), cancel)
		w.start()
		a = w.accept()
		a.expect(batch, cancel)
		a.quiet()
		w.quiet()
	})
}

func TestWhileThereIsNoDaemon(t *testing.T) {
	inWorld(t, false, func(w *world) {
		began := time.Now()
		w.write("\xEF\xBB\xBF"+request(1, "initialize", `{}`), request(2, "ping", ""), `nonsense`, `{"jsonrpc":"2.0","id":3,"method":7}`,
			request(1, "tools/list", ""), `{"jsonrpc":"2.0","id":4,"method":"x`, `{"jsonrpc":"2.0","id":1,"method":"x`)
		w.expect(response(2, `{}`))
		w.next(`"id":null,"error":{"code":-32700`)
		w.next(`"id":3,"error":{"code":-32600`)
		w.next(`"id":1,"error":{"code":-32600`)
		w.next(`"id":4,"error":{"code":-32700`)
		w.next(`"id":null,"error":{"code":-32700`)
		w.quiet()
		if time.Since(began) > time.Second {
			t.Errorf("answered after %s", time.Since(began))
		}
		// The wait is shared: what comes in between does not make it longer.
		time.Sleep(heldWait / 2)
		w.write(request(4, "tools/call", `{"name":"a"}`))
		w.next(`"id":1,"error":{"code":-31951`, `"reason":"daemon-unavailable"`, "no daemon is running")
		w.next(`"id":4,"result":{"content"`, `"isError":true`)
		if waited := time.Since(began); waited < heldWait || waited > heldWait+time.Second {
			t.Errorf("waited %s, want %s", waited, heldWait)
		}
		// From now on the daemon's absence is known, and is told as soon as another
		// attempt has failed.
		began = time.Now()
		w.write(request(5, "tools/list", ""))
		w.next(`"id":5,"error":{"code":-31951`)
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited %s", waited)
		}
		w.start()
		w.write(request(6, "tools/list", ""))
		w.accept().expect(request(6, "tools/list", ""))
	})
}

func TestFailedStartIsTheAnswerAndCanBeMended(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.refuse(&client.StartError{Err: errors.New("exit status 2"), Tail: "devproxy.toml:3: unknown key \"comand\"", LogPath: "/log"})
		w.write(initialize)
		w.next(`"id":0,"error":{"code":-31953`, `devproxy.toml:3: unknown key \"comand\"`, `"reason":"daemon-start-failed"`)
		synctest.Wait()
		if !strings.Contains(w.stderr.String(), "comand") {
			t.Errorf("stderr: %s", w.stderr)
		}
		w.tried()
		w.write(initialize) // at once: the same answer, and no further process
		w.next(`"id":0,"error":{"code":-31953`)
		if n := len(w.tried()); n > 0 {
			t.Errorf("%d more attempts", n)
		}
		w.refuse(nil)
		w.start()
		time.Sleep(nudgeAfter)
		w.write(initialize)
		w.accept().expect(initialize)
	})
}

func TestMissingProjectIsTheAnswer(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	synctest.Test(t, func(t *testing.T) {
		stdin, feed := io.Pipe()
		output, stdout := io.Pipe()
		stderr := &notes{}
		done := make(chan error, 1)
		go func() {
			done <- Run(t.Context(), Config{Stdin: stdin, Stdout: stdout, Stderr: stderr, Dir: dir})
		}()
		_, _ = io.WriteString(feed, initialize+"\n")
		answer := make([]byte, 4096)
		n, err := output.Read(answer)
		if err != nil || !strings.Contains(string(answer[:n]), `"code":-31954`) || !strings.Contains(string(answer[:n]), dir) {
			t.Errorf("answer %s, %v", answer[:n], err)
		}
		_ = feed.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !strings.Contains(stderr.String(), "devproxy-shim: no "+project.ConfigName) {
			t.Errorf("stderr: %s", stderr)
		}
	})
}

// The shim does not spin: an hour without a daemon, or with one that cannot be
// started, is a bounded number of attempts.
func TestHoursWithoutADaemon(t *testing.T) {
	for name, limit := range map[string]struct {
		err  error
		most int
	}{
		"nobody there":    {client.ErrNoDaemon, int(time.Hour/quickMost) + 20},
		"does not answer": {client.ErrNotServing, int(time.Hour/quickMost) + 20},
		"cannot start":    {&client.StartError{Err: errors.New("no")}, int(time.Hour/lastingMost) + 20},
		"does not fit":    {&client.IncompatibleError{}, int(time.Hour/lastingMost) + 20},
		"lives briefly":   {nil, int(time.Hour/quickMost) + 20},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, false, func(w *world) {
				w.refuse(limit.err)
				if limit.err == nil {
					d := w.start()
					go func() {
						for a := range d.attached {
							a.end(status.Error(codes.Unavailable, "no"))
						}
					}()
					defer close(d.attached)
				}
				time.Sleep(time.Hour)
				w.refuse(client.ErrNoDaemon) // for the rest of the test
				synctest.Wait()
				n := len(w.tried())
				if n < 30 || n > limit.most {
					t.Errorf("%d attempts in an hour, want at most %d", n, limit.most)
				}
				if size := len(w.stderr.String()); limit.err != nil && size > 1000 {
					t.Errorf("%d bytes on stderr", size)
				}
			})
		})
	}
}

func TestDuplicateIDs(t *testing.T) {
	refused := `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"open"}}`
	inWorld(t, true, func(w *world) {
		a := w.accept()
		call, list := request(1, "tools/call", `{"name":"a"}`), request(1, "tools/list", "")
		w.write(call, list)
		a.expect(call, list)
		a.tell(refused)
		w.expect(refused)
		w.write(list)
		a.expect(list)
		w.kill() // owes one refusal and one answer
		got := w.next(`"id":1`) + w.next(`"id":1`)
		if !strings.Contains(got, `"code":-32600`) || !strings.Contains(got, `"isError":true`) {
			t.Errorf("the client got %s", got)
		}
		w.start()
		w.accept().quiet()
		w.quiet()
	})
}

func TestRestartIsWaitedFor(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		list := request(1, "tools/list", "")
		w.write(list)
		a.expect(list)
		w.tried()
		a.close(devproxyv1.CloseReason_CLOSE_REASON_RESTART)
		w.kill()
		time.Sleep(3 * time.Second)
		w.start()
		b := w.accept()
		b.expect(list)
		b.tell(response(1, `{}`))
		w.expect(response(1, `{}`))
		for _, autostart := range w.tried() {
			if autostart {
				t.Error("the shim started a daemon in place of the successor")
			}
		}
		w.kill()
		time.Sleep(2 * quickMost)
		if !slices.Contains(w.tried(), true) {
			t.Error("the shim waits for a successor of the successor")
		}
	})
}

// A daemon that hands over has answered whatever may have had effects: all the
// rest goes to its successor, however often that happens.
func TestHandover(t *testing.T) {
	inWorld(t, true, func(w *world) {
		call, list := request(1, "tools/call", `{"name":"a"}`), request(2, "tools/list", "")
		level, read := request(3, "logging/setLevel", `{"level":"info"}`), request(4, "resources/read", `{"uri":"a:b","inputResponses":{}}`)
		inBatch, listed := request(5, "tools/call", `{"name":"b"}`), request(6, "prompts/list", "")
		answered, huge := request(7, "tools/call", `{"name":"c"}`), request(8, "tools/call", `{"name":"`+strings.Repeat("x", maxKeptBody)+`"}`)
		all := []string{call, list, level, read, "[" + inBatch + "," + listed + "]", answered, huge}
		a := w.accept()
		w.write(all...)
		a.expect(all...)
		a.tell(response(7, `{}`))
		a.handOver()
		w.expect(response(7, `{}`))
		w.next(`"id":8,"result"`, "restarted before it could work on this request", `"isError":true`)
		w.quiet()
		w.kill()
		for range 2 {
			w.start()
			a = w.accept()
			a.expect(call, list, level, read, inBatch, listed)
			a.quiet()
			a.handOver()
			w.kill()
			w.quiet()
		}
		// A loss is another matter.
		w.start()
		a = w.accept()
		a.expect(call, list, level, read, inBatch, listed)
		w.kill()
		for _, id := range []int{1, 3, 4, 5} {
			w.next(fmt.Sprintf(`"id":%d,`, id), "ended while it worked on this request")
		}
		w.start()
		a = w.accept()
		a.expect(list, listed)
		for _, id := range []int{2, 6} {
			a.tell(response(id, `{}`))
			w.expect(response(id, `{}`))
		}
		a.quiet()
		w.quiet()
	})
}

func TestRestartWithoutSuccessorIsMended(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		time.Sleep(stableAfter)
		w.tried()
		a.close(devproxyv1.CloseReason_CLOSE_REASON_RESTART)
		w.kill()
		time.Sleep(restartGrace + 2*quickMost)
		attempts := w.tried()
		if len(attempts) == 0 || attempts[0] || !attempts[len(attempts)-1] {
			t.Errorf("attempts %v, want dials and then starts", attempts)
		}
	})
}

func TestStoppedDaemonStaysStopped(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		call, listen := request(1, "tools/call", `{"name":"a"}`), request(2, "subscriptions/listen", `{"notifications":{}}`)
		w.write(call, listen)
		a.expect(call, listen)
		w.tried()
		a.close(devproxyv1.CloseReason_CLOSE_REASON_SHUTDOWN)
		w.next(`"id":1,"result"`, "was stopped", "devproxyd start")
		w.expect(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`)
		w.kill()
		w.write(request(3, "tools/list", ""))
		w.next(`"id":3,"error":{"code":-31952`)
		w.write(request(4, "ping", ""))
		w.expect(response(4, `{}`))
		time.Sleep(time.Hour)
		w.write(request(5, "tools/list", ""))
		w.next(`"id":5,"error":{"code":-31952`)
		for _, autostart := range w.tried() {
			if autostart {
				t.Fatal("the shim started the daemon that was stopped")
			}
		}
		w.start() // by somebody
		b := w.accept()
		w.write(request(6, "tools/list", ""))
		b.expect(request(6, "tools/list", ""))
		w.kill()
		w.tried()
		time.Sleep(2 * quickMost)
		if attempts := w.tried(); len(attempts) == 0 || !attempts[0] {
			t.Errorf("attempts after a crash: %v", attempts)
		}
	})
}

// Which of the two is to be updated is told, whoever finds out that they do not
// fit. Nobody is ended over it, and once somebody has replaced the daemon the
// client goes on.
func TestIncompatibleDaemon(t *testing.T) {
	for name, test := range map[string]struct {
		contract uint32
		refuses  bool // the daemon, before the shim can
		want     string
	}{
		"newer":              {client.Contract + 1, false, "update devproxy-shim"},
		"older":              {client.Contract - 1, false, "update devproxyd"},
		"newer that refuses": {client.Contract + 1, true, "update devproxy-shim"},
		"older that refuses": {client.Contract - 1, true, "update devproxyd"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, false, func(w *world) {
				other := &devproxyv1.Welcome{Contract: test.contract, Version: "9.0"}
				w.start(func(d *fakeDaemon) {
					if d.welcome = other; test.refuses {
						d.welcome = nil
					}
				})
				w.write(initialize, request(1, "tools/call", `{"name":"a"}`))
				a := w.accept()
				if test.refuses {
					refusal, err := status.New(codes.FailedPrecondition, "no").WithDetails(other)
					if err != nil {
						t.Fatal(err)
					}
					a.end(refusal.Err())
				}
				w.next(`"id":0,"error":{"code":-31955`, test.want, `"reason":"daemon-incompatible"`)
				w.next(`"id":1,"result"`, test.want, `"isError":true`)
				w.quiet()
				if !strings.Contains(w.stderr.String(), test.want) {
					t.Errorf("stderr: %s", w.stderr)
				}
				w.kill()
				w.start()
				b := w.accept()
				w.write(initialize)
				b.expect(initialize)
			})
		})
	}
}

// Another version of the same contract is a word to the person, no more.
func TestVersionSkewIsAWarning(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.start(func(d *fakeDaemon) { d.welcome.Version, d.welcome.Warning = "9.0", "devproxy-shim talks to 9.0" })
		w.handshake(w.accept())
		w.quiet()
		if said := w.stderr.String(); strings.Count(said, "devproxy-shim: devproxy-shim talks to 9.0\n") != 1 {
			t.Errorf("stderr: %s", said)
		}
	})
}

func TestRefusal(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.start(func(d *fakeDaemon) { d.welcome = nil })
		list := request(1, "tools/list", "")
		w.write(list, request(2, "tools/call", `{"name":"a"}`))
		a := w.accept()
		a.expect(list)
		a.end(status.Error(codes.FailedPrecondition, "this daemon serves another project"))
		w.next(`"id":1,"error"`, "another project")
		w.next(`"id":2,"result"`, "another project", `"isError":true`)
		w.quiet()
	})
}

func TestSlowConsumer(t *testing.T) {
	t.Run("told", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			w.accept().close(devproxyv1.CloseReason_CLOSE_REASON_SLOW_CONSUMER)
			if err := <-w.result; !errors.Is(err, ErrSlowConsumer) {
				t.Errorf("Run = %v", err)
			}
		})
	})
	// The daemon's last word queues behind what the client does not read; the
	// shim finds it all the same.
	for name, size := range map[string]int{"small messages": 100 << 10, "large messages": 3 << 20} {
		t.Run("behind a full window of "+name, func(t *testing.T) {
			inWorld(t, true, func(w *world) {
				a := w.accept()
				w.paused.shut()
				flood := []byte(note("notifications/message", `{"data":"`+strings.Repeat("x", size)+`"}`))
				var taken atomic.Int64
				go func() {
					for {
						for rest := flood; len(rest) > 0; {
							piece := rest[:min(len(rest), client.ChunkSize)]
							rest = rest[len(piece):]
							if !a.put(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Chunk{
								Chunk: &devproxyv1.Chunk{Data: slices.Clone(piece), Last: len(rest) == 0},
							}}) {
								return
							}
							taken.Add(int64(len(piece)))
						}
					}
				}()
				synctest.Wait()
				if most := int64(2*outHighWater + 2*client.WindowSize + 4*size); taken.Load() > most {
					t.Errorf("the shim took %d bytes that nobody reads", taken.Load())
				}
				time.Sleep(30 * time.Second)
				a.end(status.Error(codes.ResourceExhausted, "slow"))
				began := time.Now()
				if err := <-w.result; !errors.Is(err, ErrSlowConsumer) {
					t.Errorf("Run = %v", err)
				}
				if waited := time.Since(began); waited > stallProbe-30*time.Second+pumpGrace {
					t.Errorf("found out after %s", waited)
				}
				w.paused.lift()
			})
		})
	}
	t.Run("a pause loses nothing", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			a := w.accept()
			w.paused.shut()
			flood := note("notifications/message", `{"data":"`+strings.Repeat("x", 1<<20)+`"}`)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for range 20 {
					a.tell(flood)
				}
			}()
			time.Sleep(29 * time.Second)
			w.paused.lift()
			for range 20 {
				w.expect(flood)
			}
			<-sent
		})
	})
}

// A daemon that dies while the client does not read is noticed all the same.
func TestLossIsSeenBehindAFullWindow(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		call := request(1, "tools/call", `{"name":"a"}`)
		w.write(call)
		a.expect(call)
		w.paused.shut()
		flood := note("notifications/message", `{"data":"`+strings.Repeat("x", 100<<10)+`"}`)
		go func() {
			for range 100 {
				a.tell(flood)
			}
		}()
		time.Sleep(2 * time.Second)
		w.tried()
		w.kill()
		time.Sleep(time.Second)
		if len(w.tried()) == 0 {
			t.Error("no attempt to get another daemon")
		}
		w.paused.lift()
		for w.next("") == flood {
		}
	})
}

func TestEndOfInput(t *testing.T) {
	// within fails the test unless Run returns nil in time.
	within := func(w *world, most time.Duration) {
		w.t.Helper()
		began := time.Now()
		_ = w.stdin.Close()
		if err := <-w.result; err != nil {
			w.t.Errorf("Run = %v", err)
		}
		if took := time.Since(began); took > most {
			w.t.Errorf("took %s, want at most %s", took, most)
		}
	}
	t.Run("nothing open", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			a := w.accept()
			go func() {
				for range a.frames { // until the end of input
				}
				a.close(devproxyv1.CloseReason_CLOSE_REASON_DONE)
			}()
			within(w, 0)
		})
	})
	t.Run("what was read is answered", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			a := w.accept()
			list := request(1, "tools/list", "")
			w.write(list)
			_ = w.stdin.Close()
			a.expect(list)
			if _, open := <-a.frames; open {
				t.Error("the end of input is not passed on")
			}
			time.Sleep(100 * time.Millisecond)
			a.tell(response(1, `{}`))
			a.close(devproxyv1.CloseReason_CLOSE_REASON_DONE)
			w.expect(response(1, `{}`))
			within(w, 0)
		})
	})
	t.Run("a daemon that does not end", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			w.accept()
			w.write(request(1, "tools/call", `{"name":"a"}`))
			within(w, exitWithin+pumpGrace)
		})
	})
	t.Run("a client that does not read", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			a := w.accept()
			w.paused.shut()
			a.tell(response(1, `{}`), response(2, `{}`), response(3, `{}`))
			within(w, exitWithin+pumpGrace)
			w.paused.lift()
		})
	})
	t.Run("no daemon", func(t *testing.T) {
		inWorld(t, false, func(w *world) {
			w.write(request(1, "tools/list", ""))
			synctest.Wait()
			within(w, exitWithin)
		})
	})
	t.Run("half a line", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			a := w.accept()
			_, _ = io.WriteString(w.stdin, `{"jsonrpc":"2.0","id":1,`)
			_ = w.stdin.Close()
			a.expect(`{"jsonrpc":"2.0","id":1,`)
		})
	})
	t.Run("read error", func(t *testing.T) {
		inWorld(t, true, func(w *world) {
			w.accept()
			_ = w.stdin.CloseWithError(errors.New("pulled out"))
			if err := <-w.result; err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	})
}

func TestSignalEndsAtOnce(t *testing.T) {
	for _, running := range []bool{true, false} {
		inWorld(t, running, func(w *world) {
			if running {
				a := w.accept()
				w.paused.shut()
				a.tell(response(1, `{}`), response(2, `{}`))
			}
			w.write(request(3, "tools/call", `{"name":"a"}`))
			synctest.Wait()
			began := time.Now()
			w.stop(errors.New("terminated"))
			if err := <-w.result; err != nil {
				t.Errorf("Run = %v", err)
			}
			if took := time.Since(began); took > pumpGrace {
				t.Errorf("took %s", took)
			}
			if running {
				w.paused.lift()
			}
		})
	}
}

func TestLostStdoutEndsAtOnce(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		_ = w.reader.CloseWithError(errors.New("EPIPE"))
		a.tell(response(1, `{}`))
		began := time.Now()
		if err := <-w.result; err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(began); took > pumpGrace {
			t.Errorf("took %s", took)
		}
	})
}

func TestLineThatIsTooLong(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		long := strings.Repeat("x", maxLine)
		w.write(request(7, "tools/call", `"`+long+`"`))
		w.next(`"id":7,"error":{"code":-31958`, `the limit is 67108864`)
		w.write(`{"method":"a","params":"` + long + `","jsonrpc":"2.0","id":8}`)
		w.next(`"id":8,"error":{"code":-31958`)
		w.write(`{"params":"` + long + `","id":8,"method":"a","x":[]}`)
		w.next(`"id":null,"error":{"code":-31958`)
		w.write(`{"result":"` + long + `","jsonrpc":"2.0","id":8}`) // to a question, not a request
		w.next(`"id":null,"error":{"code":-31958`)
		w.write(request(9, "tools/list", ""))
		a.expect(request(9, "tools/list", ""))
	})
}

func TestBatches(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		batch := `[` + request(1, "tools/list", "") + `,` + request(2, "tools/call", `{"name":"a"}`) + `,` + initialized + `]`
		w.write(batch)
		a.expect(batch)
		answer := `[` + response(1, `{}`) + `]`
		a.tell(answer)
		w.expect(answer)
		w.kill()
		w.next(`"id":2,"result"`, `"isError":true`)
		w.write(batch)
		w.start()
		a = w.accept()
		a.expect(batch)
		w.kill() // the list is sent again, the call is not
		w.next(`"id":2,"result"`, `"isError":true`)
		w.start()
		w.accept().expect(request(1, "tools/list", ""))
		w.quiet()
	})
}

func TestWhatWaitsIsBounded(t *testing.T) {
	inWorld(t, false, func(w *world) {
		for n := range maxHeld + 1 {
			w.write(request(n, "tools/list", ""))
		}
		w.next(fmt.Sprintf(`"id":%d,"error":{"code":-31957`, maxHeld))
		for range maxHeld {
			w.next(`"code":-31951`)
		}
		for range maxHeldNotes + 10 {
			w.write(note("notifications/roots/list_changed", `{}`))
		}
		w.start()
		a := w.accept()
		for range maxHeldNotes {
			a.expect(note("notifications/roots/list_changed", `{}`))
		}
		a.quiet()
		w.quiet()
	})
}

// A client that floods is slowed down by a daemon that does not read.
func TestFloodIsSlowedDown(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.start(func(d *fakeDaemon) { d.deaf = true })
		w.accept()
		large := note("notifications/x", `{"data":"`+strings.Repeat("x", 100<<10)+`"}`)
		var taken atomic.Int64
		go func() {
			for {
				if _, err := io.WriteString(w.stdin, large+"\n"); err != nil {
					return
				}
				taken.Add(int64(len(large)))
			}
		}()
		synctest.Wait()
		if most := int64(2*queueHighWater + 2*client.WindowSize); taken.Load() > most {
			t.Errorf("took %d bytes that nobody reads, want at most %d", taken.Load(), most)
		}
		w.stop(nil)
	})
}

func TestEachLineIsOneWrite(t *testing.T) {
	frames := make(chan []byte)
	failed := make(chan error, 1)
	var sizes []int
	done := running(func() {
		writeLines(writerFunc(func(p []byte) (int, error) {
			sizes = append(sizes, len(p))
			return len(p), nil
		}), frames, failed)
	})
	for _, size := range []int{2, 100_000, 7} {
		frames <- []byte(`"` + strings.Repeat("x", size-2) + `"`)
	}
	close(frames)
	<-done
	if fmt.Sprint(sizes) != "[3 100001 8]" {
		t.Errorf("writes of %v bytes", sizes)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFailureTable(t *testing.T) {
	reasons, codes := map[string]bool{}, map[int64]bool{}
	for _, row := range Failures() {
		if row.Code >= -32768 && row.Code <= -32000 {
			t.Errorf("%s has the reserved code %d", row.Reason, row.Code)
		}
		if reasons[row.Reason] || codes[row.Code] || row.Message == "" || row.Hint == "" {
			t.Errorf("row %+v is incomplete or there twice", row)
		}
		reasons[row.Reason], codes[row.Code] = true, true
	}
}

// What the ledger keeps of subscriptions is bounded by their number and their size, and given back.
func TestLedgerOfSubscriptionsIsBounded(t *testing.T) {
	l := newLedger()
	big := []byte(strings.Repeat("x", maxSubscribed/2-10))
	l.subscribe("a", big)
	l.subscribe("a", big) // it has that one
	l.subscribe("b", big)
	if len(l.order) != 2 || l.unresumed {
		t.Errorf("kept are %v, unresumed %v", l.order, l.unresumed)
	}
	l.subscribe("c", big)
	if len(l.order) != 2 || !l.unresumed || l.subscribed > maxSubscribed {
		t.Errorf("kept are %v of %d bytes, unresumed %v", l.order, l.subscribed, l.unresumed)
	}
	for _, uri := range []string{"a", "b", "c"} {
		l.unsubscribe(uri)
	}
	if l.subscribed != 0 || len(l.order) != 0 {
		t.Errorf("%d bytes and %v are left", l.subscribed, l.order)
	}
	for n := range maxSubscriptions + 1 {
		l.subscribe(fmt.Sprint(n), nil)
	}
	if len(l.order) != maxSubscriptions {
		t.Errorf("%d are kept", len(l.order))
	}
}

// What one client can make the shim keep is bounded while there is a daemon, too.
func TestWhatIsOpenIsBounded(t *testing.T) {
	s := newSession(Config{}, nil)
	s.link = &link{}
	for n := range maxCalls + 1 {
		s.ledger.open(wire.Message{ID: wire.IntID(int64(n)), Method: "tools/list"})
	}
	if why := s.tooMuch(1); !strings.Contains(why, fmt.Sprint(maxCalls)) {
		t.Errorf("one more than %d: %q", maxCalls, why)
	}
	s.link, s.ledger, s.queueBytes = nil, newLedger(), maxHeldBytes
	if why := s.tooMuch(1); !strings.Contains(why, fmt.Sprint(maxHeldBytes)) {
		t.Errorf("one more than %d bytes: %q", maxHeldBytes, why)
	}

	l := newLedger()
	for n := range 2*maxKept/maxKeptBody + 1 {
		c := l.open(wire.Message{ID: wire.IntID(int64(n)), Method: "tools/list"})
		if l.sending(c, make([]byte, maxKeptBody)); l.kept > maxKept || (n < maxKept/maxKeptBody) != (c.frame != nil) {
			t.Fatalf("after %d requests %d bytes are kept", n+1, l.kept)
		}
	}

	message := assembly{size: maxMessage}
	if _, got := message.add(&devproxyv1.Chunk{Data: []byte("x")}); !errors.Is(got.end, errMessageTooLong) {
		t.Errorf("a message without end: %v", got.end)
	}
}

func TestBatchIsBounded(t *testing.T) {
	inWorld(t, true, func(w *world) {
		a := w.accept()
		w.write("[" + strings.Repeat(`{"jsonrpc":"2.0","method":"a"},`, maxCalls) + `{"jsonrpc":"2.0","method":"a"}]`)
		w.next(`"id":null,"error":{"code":-31957`, "no more than 10000 may be")
		a.quiet()
	})
}

// stuckInput says that its Read can be interrupted, which for one in the middle of a
// system call is not so.
type stuckInput struct{ end chan struct{} }

func (s stuckInput) Read([]byte) (int, error) {
	<-s.end
	return 0, io.EOF
}

func (stuckInput) SetDeadline(time.Time) error { return nil }

func TestInputThatCannotBeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stdin := stuckInput{make(chan struct{})}
		defer close(stdin.end)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, Config{
				Stdin: stdin, Stdout: io.Discard, Stderr: io.Discard,
				Connect: func(context.Context, bool) (Daemon, error) { return nil, errors.New("none here") },
			})
		}()
		synctest.Wait()
		cancel()
		began := time.Now()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(began); took > exitWithin {
			t.Errorf("it took %s", took)
		}
	})
}
