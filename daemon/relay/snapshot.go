package relay

import (
	"strings"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
)

// SessionStatus is what status shows of one session.
type SessionStatus struct {
	ID       uint64
	Shim     Shim
	Attached time.Time
	// ClientName and ClientVersion are the client's own words; empty before its
	// first request.
	ClientName, ClientVersion string
	// Era is "legacy", "modern", or empty before the first request.
	Era string
	// Version is the protocol version the client speaks.
	Version  string
	InFlight int
	// LastMethod is the method of the client's last message, sent at LastTime.
	LastMethod string
	LastTime   time.Time
	// Stale says what the client was told in its handshake that no longer holds;
	// empty if nothing.
	Stale string
	// Link is era and version of the session's own link to the backend; empty
	// without one.
	Link string
	// Listed is the generation whose tools the client was given last; 0 for none.
	// Some clients hold on to what they have, whatever they are told.
	Listed uint64
}

// Snapshot returns the attached sessions, oldest first. It may be called from
// anywhere and waits for nobody.
func (r *Router) Snapshot() []SessionStatus {
	sessions := r.published.Load()
	if sessions == nil {
		return nil
	}
	all := make([]SessionStatus, 0, len(*sessions))
	for _, s := range *sessions {
		all = append(all, s.status())
	}
	return all
}

// HiddenTools are the dev tools whose names the backend's last list has itself, so
// that clients get the backend's. It may be called from anywhere and waits for nobody.
func (r *Router) HiddenTools() []string {
	if hidden := r.hiddenTools.Load(); hidden != nil {
		return *hidden
	}
	return nil
}

func (s *Session) status() SessionStatus {
	status := SessionStatus{
		ID: s.id, Shim: s.shim, Attached: s.attached,
		InFlight: int(s.view.inFlight.Load()), Listed: s.view.listed.Load(),
	}
	if p := s.view.peer.Load(); p != nil {
		status.ClientName, status.ClientVersion = p.name, p.version
		status.Era, status.Version = p.era, p.protocol
		status.Stale, status.Link = p.stale, p.link
	}
	if l := s.view.last.Load(); l != nil {
		status.LastMethod, status.LastTime = l.method, l.at
	}
	return status
}

// maxShown bounds each of a client's own words that status shows: a name is
// one, and the status of some thousand clients has to fit into one answer.
const maxShown = 256

// short cuts a text to maxShown bytes. A copy holds on to nothing that it was
// cut from.
func short(text string) string {
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown-len("…")], "") + "…"
	}
	return strings.Clone(text)
}

// Greeting is who the shared handshake of a start speaks for: era, version and
// name of the client whose request starts the backend (of the newest client if
// none did), and the union of the capabilities of all attached ones. It may be
// called from anywhere and waits for nobody.
func (r *Router) Greeting() era.Peer {
	if p := r.greeting.Load(); p != nil {
		return *p
	}
	return era.Peer{}
}

// publishSessions shows the attached sessions.
func (r *Router) publishSessions() {
	sessions := make([]*Session, len(r.order))
	for i, c := range r.order {
		sessions[i] = c.session
	}
	r.published.Store(&sessions)
}

// publishPeer shows what a client said of itself, and what it was told.
func (r *Router) publishPeer(c *client) {
	p := &peerView{stale: r.stale(c)}
	if e := c.eraNow(); e != era.None {
		p.era, p.protocol = e.String(), short(c.peer.Version)
	}
	name, _ := memberString(c.peer.Info, "name")
	version, _ := memberString(c.peer.Info, "version")
	p.name, p.version = short(name), short(version)
	if c.link != nil && c.link.state == linkOpen {
		p.link = c.link.facts.Era.String() + " " + c.link.facts.Version
	}
	c.session.view.peer.Store(p)
}

// publishGreeting shows whom the next shared handshake speaks for. While no
// client is attached the last one stands.
func (r *Router) publishGreeting() {
	var greeting era.Peer
	peers := make([]era.Peer, 0, len(r.order))
	for _, c := range r.order {
		if c.peer.Era == era.None {
			continue
		}
		peers = append(peers, c.peer)
		greeting = c.peer
	}
	if r.starter != nil && r.sessions[r.starter.session] == r.starter {
		greeting = r.starterPeer
	}
	if len(peers) == 0 {
		return
	}
	// What is asked for is what all can live with: each session is then held to
	// its own version and capabilities.
	greeting.Capabilities = era.Union(peers)
	greeting.Version = era.LegacyVersion
	if greeting.Era == era.Modern {
		greeting.Version = era.ModernVersion
	}
	r.greeting.Store(&greeting)
}
