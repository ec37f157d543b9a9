//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// arguments are those of all tools.
type arguments struct {
	Token string // of this call alone
	MS    int
	Steps int
	Bytes int
	Lines int
	How   string
	URI   string
	Level string
}

// questionLife is how long an answer to a question is waited for.
const questionLife = 3 * time.Second

// tools are the names of all tools; build is that of the current build.
func tools(build string) []string {
	return []string{
		"echo", "slow", "crash", "torn", "big", "ask", "notify", "noise", "spawn", "hang", "stubborn", "late", build,
	}
}

// call runs a tool and returns the answer, if there is one.
func (x *exchange) call(ctx context.Context) (message, bool) {
	b, a := x.session.backend, x.params.Arguments
	if x.params.RequestState != "" || len(x.params.InputResponses) > 0 {
		return x.resume(), true
	}
	b.journal.write("call", a.Token, x.params.Name)
	switch x.params.Name {
	case "slow":
		if !x.slow(ctx) {
			return message{}, false
		}
	case "late":
		time.Sleep(time.Duration(a.MS) * time.Millisecond)
		return x.succeed("late"), true
	case "hang":
		<-ctx.Done()
		return message{}, false
	case "crash":
		x.crash()
	case "torn":
		x.stream.tear(x.succeed(strings.Repeat("torn ", 100)))
		b.leave("torn", 4)
	case "big":
		return x.succeed(strings.Repeat("x", a.Bytes)), ctx.Err() == nil
	case "ask":
		return x.ask(ctx)
	case "notify":
		x.notify()
	case "noise":
		x.noise()
	case "spawn":
		x.spawn()
	case "stubborn":
		b.stubborn.Store(true)
	}
	return x.succeed(x.params.Name), ctx.Err() == nil
}

// succeed is the answer that says that the call was executed.
func (x *exchange) succeed(text string) message {
	return result(x.id, x.stamp(object{
		"content": []object{{"type": "text", "text": "ok " + x.params.Arguments.Token + " " + text}},
	}))
}

// slow reports whether it was left to finish.
func (x *exchange) slow(ctx context.Context) bool {
	a := x.params.Arguments
	steps := max(1, a.Steps)
	for step := range steps {
		if x.params.Meta.Token != nil {
			x.stream.send(notification("notifications/progress", object{
				"progressToken": x.params.Meta.Token, "progress": step, "total": steps,
			}))
		}
		select {
		case <-time.After(time.Duration(a.MS) * time.Millisecond / time.Duration(steps)):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (x *exchange) crash() {
	if x.params.Arguments.How == "kill" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	x.session.backend.leave("crash", 7)
}

// question is what a tool asks the client, by method.
func question(method, token string) object {
	switch method {
	case "sampling/createMessage":
		return object{
			"maxTokens": 5,
			"messages":  []object{{"role": "user", "content": object{"type": "text", "text": token}}},
		}
	case "elicitation/create":
		return object{"message": token, "requestedSchema": object{"type": "object", "properties": object{}}}
	default:
		return object{}
	}
}

// ask asks the client, in the way of its era.
func (x *exchange) ask(ctx context.Context) (message, bool) {
	a := x.params.Arguments
	if x.modern {
		return result(x.id, object{
			"resultType":    "input_required",
			"inputRequests": object{"q": object{"method": a.How, "params": question(a.How, a.Token)}},
			"requestState":  fmt.Sprintf("%d:%s", os.Getpid(), a.Token),
		}), true
	}
	s := x.session
	s.mu.Lock()
	s.asked++
	id := encode(fmt.Sprintf("q%d-%s-%d", os.Getpid(), s.name, s.asked))
	answer := make(chan message, 1)
	s.questions[string(id)] = answer
	s.mu.Unlock()
	x.stream.send(message{ID: id, Method: a.How, Params: encode(question(a.How, a.Token))})
	select {
	case m := <-answer:
		if m.Error != nil {
			return x.succeed("refused"), true
		}
		return x.succeed("answered"), true
	case <-time.After(questionLife):
	case <-ctx.Done():
	}
	s.takeBack(string(id))
	x.stream.send(notification("notifications/cancelled", object{"requestId": id}))
	return x.succeed("not answered"), ctx.Err() == nil
}

func (s *session) takeBack(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions[key] != nil {
		s.questions[key] = nil
		s.taken[key] = true
	}
}

// resume goes on with a call that asked. A state of an earlier life is refused,
// as any server would that keeps nothing.
func (x *exchange) resume() message {
	state := x.params.RequestState
	if state != fmt.Sprintf("%d:%s", os.Getpid(), x.params.Arguments.Token) {
		return failure(x.id, codeInvalidParams, "unknown requestState", nil)
	}
	x.session.backend.journal.write("resume", state)
	return x.succeed("resumed")
}

// notify says something to everybody who wants to hear it.
func (x *exchange) notify() {
	a := x.params.Arguments
	switch a.How {
	case "update":
		for _, s := range x.session.backend.all() {
			s.update(a.URI)
		}
	case "list":
		for _, s := range x.session.backend.all() {
			s.listChanged()
		}
	case "log":
		x.log(a.Level)
	}
}

func (s *session) update(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[uri] {
		s.aside(notification("notifications/resources/updated", object{"uri": uri}))
	}
	for _, l := range s.listens {
		for _, wanted := range l.filter.URIs {
			if wanted == uri {
				l.stream.send(notification("notifications/resources/updated", object{
					"uri": uri, "_meta": object{metaSubscription: l.id},
				}))
			}
		}
	}
}

func (s *session) listChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.legacy {
		s.aside(notification("notifications/tools/list_changed", nil))
	}
	for _, l := range s.listens {
		if l.filter.Tools {
			l.stream.send(notification("notifications/tools/list_changed", object{"_meta": object{metaSubscription: l.id}}))
		}
	}
}

// levels are the log levels from the lowest on.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func severity(level string) int {
	for i, known := range levels {
		if known == level {
			return i
		}
	}
	return -1
}

// log says a line if the client asked for lines of that level.
func (x *exchange) log(level string) {
	wanted := x.params.Meta.Level
	if !x.modern {
		x.session.mu.Lock()
		wanted = x.session.level
		x.session.mu.Unlock()
	}
	if wanted != "" && severity(level) >= severity(wanted) {
		x.stream.send(notification("notifications/message", object{"level": level, "data": x.params.Arguments.Token}))
	}
}

// noise writes what is no protocol: between the frames of stdio, and to stderr.
func (x *exchange) noise() {
	for n := range x.params.Arguments.Lines {
		if x.session.backend.transport == "stdio" && n < 20 {
			x.stream.write([]byte("* * * banner " + strconv.Itoa(n) + " {not json} * * *\n"))
		}
		fmt.Fprintln(os.Stderr, "noise", n, strings.Repeat("-", 100))
	}
}

// spawn leaves a grandchild behind that has this process's pipes and does not
// end by itself.
func (x *exchange) spawn() {
	command := exec.Command(os.Args[0], "-grandchild", strconv.Itoa(os.Getpid()))
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: x.params.Arguments.How == "setsid"}
	if err := command.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "chaosbackend: spawning a grandchild:", err)
		return
	}
	go func() { _ = command.Wait() }()
}
