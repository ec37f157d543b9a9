package relay

// Starting says that a generation is being started (or built for): requests wait
// for it.
func (r *Router) Starting(generation uint64) { r.mail.post(startingEvent{generation}) }

// Up says that a generation serves.
func (r *Router) Up(g Generation) { r.mail.post(upEvent{g}) }

// Draining says that a generation is about to be stopped: what is in flight may
// finish, new requests wait for the next one. Backend.Drained follows when
// nothing is in flight any more.
func (r *Router) Draining(generation uint64) { r.mail.post(drainingEvent{generation}) }

// Down says that the stop of a generation has begun, or that it has ended: what
// is in flight on it is answered with why.
func (r *Router) Down(generation uint64, why Failure) { r.mail.post(downEvent{generation, why}) }

// Unavailable says that no generation is coming up for those who wait, and why:
// they are answered with it, unless the failure says that waiting helps. Who
// comes later asks anew.
func (r *Router) Unavailable(why Failure) { r.mail.post(unavailableEvent{why}) }

// Shutdown says that the daemon is about to end, with ErrShutdown or ErrRestart:
// from now on no request is brought to the backend, while those in flight may
// finish. The end of Run's context then ends the sessions. On ErrShutdown the
// requests that need the backend are refused; on ErrRestart they wait, and at the
// end whatever cannot have had effects stays unanswered: the shim sends it to the
// successor. The channel is closed when nothing is in flight any more.
func (r *Router) Shutdown(cause error) (quiet <-chan struct{}) {
	r.mail.post(shutdownEvent{cause})
	return r.quiet
}

type (
	startingEvent    struct{ generation uint64 }
	upEvent          struct{ generation Generation }
	drainingEvent    struct{ generation uint64 }
	unavailableEvent struct{ why Failure }
	shutdownEvent    struct{ cause error }
	downEvent        struct {
		generation uint64
		why        Failure
	}
)
