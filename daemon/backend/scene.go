package backend

import (
	"fmt"
	"slices"
	"time"
)

// historyLimit is how many generations status remembers: more than a person
// restarts while looking for one fault.
const historyLimit = 10

// scene is what status shows beside the state machine's own.
type scene struct {
	pid, port int
	command   []string
	transport Transport
	up        *Generation
	readyAt   time.Time
	retryAt   time.Time
	note      string
	lastExit  *Exit
	// history are the last generations, oldest first. Each Exit in it is shared
	// with what was published, and does not change.
	history []Lived
	// build is the last or running build, built the last that has ended.
	build, built Build
}

func (s *scene) spawned(generation uint64, at time.Time, p plan, pid int) {
	s.pid, s.port = pid, p.port
	if last := len(s.history) - 1; last >= 0 && s.history[last].Generation == generation {
		s.history = s.history[:last] // another process of the same start, on another port
	}
	s.history = append(s.history, Lived{Generation: generation, PID: pid, StartedAt: at})
	if extra := len(s.history) - historyLimit; extra > 0 {
		s.history = slices.Delete(s.history, 0, extra)
	}
	s.command, s.transport = p.launch.Command, p.launch.Transport
}

// take notes what an event shows besides the change of state.
func (s *scene) take(e event, before, after state) {
	if after.phase != before.phase {
		s.note, s.retryAt = "", time.Time{}
		if after.phase == Backoff {
			s.retryAt = e.at.Add(after.delay)
		}
	}
	switch e.kind {
	case ready:
		s.up, s.readyAt = e.up, e.at
		if l := s.lifeOf(after.generation); l != nil {
			l.ReadyAt = e.at
		}
	case exited:
		s.exited(e, after)
	case gone:
		if before.spawned && (s.lastExit == nil || s.lastExit.Generation != before.generation) {
			s.exited(e, before)
		}
		if e.failure == nil {
			s.pid, s.port = 0, 0
		}
	case built:
		s.build.Duration, s.build.Running = e.at.Sub(s.build.StartedAt), false
		s.build.OK, s.build.Tail = e.failure == nil, e.tail
		if e.failure != nil {
			s.build.Message = e.failure.Message
		}
		s.built = s.build
	default:
	}
	if after.phase != Running {
		s.up, s.readyAt = nil, time.Time{}
	}
	if after.build != 0 && after.build != before.build {
		s.build = Build{StartedAt: e.at, Running: true}
	}
}

func (s *scene) exited(e event, about state) {
	s.lastExit = &Exit{
		Generation: about.generation, At: e.at, Status: e.exit, Reason: about.ended, StderrTail: e.tail, Deaf: e.deaf,
	}
	if l := s.lifeOf(about.generation); l != nil {
		short := *s.lastExit
		short.StderrTail = nil
		l.Exit = &short
	}
}

// lifeOf is that generation's in the history; nil if it is forgotten.
func (s *scene) lifeOf(generation uint64) *Lived {
	for i := range slices.Backward(s.history) {
		if s.history[i].Generation == generation {
			return &s.history[i]
		}
	}
	return nil
}

// status is what is published for the state.
func (s *scene) status(of state) Status {
	status := Status{
		State: of.phase, Generation: of.generation,
		PID: s.pid, Port: s.port, ReadyAt: s.readyAt,
		Command: s.command, Transport: s.transport,
		LastExit: s.lastExit, History: slices.Clone(s.history), Crashes: len(of.crashes), RetryAt: s.retryAt,
		Building: of.build != 0,
	}
	if of.phase == Running && s.up != nil {
		facts := s.up.Facts()
		status.Facts = &facts
	}
	if of.phase == Failed {
		status.Failure = of.failure.clone()
	}
	if of.phase == Failed || of.phase == Backoff {
		status.NeverRan = of.failure.Generation == 0
	}
	if !s.build.StartedAt.IsZero() {
		build := s.build
		status.LastBuild = &build
	}
	status.Message = s.message(of)
	return status
}

func (s *scene) message(of state) string {
	switch of.phase {
	case Idle:
		return "starts on the first request that needs it"
	case Building:
		if of.wanted {
			return "the build runs; a start follows"
		}
		return "the build runs; a start follows if it succeeds"
	case Starting:
		if s.note != "" {
			return s.note
		}
		return "being started"
	case Running:
		if of.wanted {
			return "the build runs; a restart follows"
		}
		return ""
	case Draining:
		return fmt.Sprintf("calls in flight may finish within %s", of.orders.drain)
	case Stopping:
		return s.stopping(of)
	case Backoff, Failed:
		return of.failure.summary()
	}
	return ""
}

func (s *scene) stopping(of state) string {
	switch of.next {
	case Starting:
		return "ending its processes; the next start follows"
	case Backoff, Failed:
		return of.failure.Message
	default:
		return "ending its processes"
	}
}
