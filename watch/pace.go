package watch

import "time"

// pace decides when to leave events to the system's queue for a moment, so that
// those of a large build are read many at a time. It is pure: the caller brings
// the time.
type pace struct {
	burst   int       // events of it, up to crowd
	sip     time.Time // since when events are read
	sipped  int       // events read since then
	resting bool
}

// tires notes an event and reports whether a rest begins with it.
func (p *pace) tires(now time.Time) bool {
	p.sipped++
	if p.burst++; p.burst < crowd {
		return false
	}
	p.burst = crowd
	if now.Sub(p.sip) < sip {
		return false
	}
	if p.sipped >= backlog {
		p.resume(now)
		return false
	}
	p.resting = true
	return true
}

// resume begins a sip.
func (p *pace) resume(now time.Time) { p.resting, p.sip, p.sipped = false, now, 0 }
