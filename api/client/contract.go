package client

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// Contract is the number of the contract in proto/devproxy/v1 that this build
// speaks, as in Hello.contract, Welcome.contract and Daemon.contract. It grows
// only with a change that an older side would misunderstand; additions do not
// count. To tell its status and to end when asked to is part of every contract.
const Contract uint32 = 1

// Limits that both ends of a connection share.
const (
	// ChunkSize is how much of a message travels in one chunk. Large enough that
	// the cost per chunk is lost in the cost per byte, small enough that a
	// message of one client does not hold up the other end's memory.
	ChunkSize = 128 << 10
	// MaxCallMessage limits one gRPC message in either direction. Chunks stay far
	// below it; a status with its build output and stderr tails has to fit.
	MaxCallMessage = 16 << 20
	// WindowSize is the flow-control window of a stream and of a connection. It
	// bounds what a peer that does not read makes the other one buffer, and lets
	// a few chunks be under way at once.
	WindowSize = 1 << 20
)

// ExitRunning is the exit code of a daemon process that found another daemon of
// the project running. It is EX_TEMPFAIL of sysexits.h: no failure of its own.
const ExitRunning = 75

// ErrIncompatible is what every *IncompatibleError is.
var ErrIncompatible = errors.New("incompatible versions")

// IncompatibleError says that two builds do not speak the same contract.
// Neither side acts on it: the person updates one of them.
type IncompatibleError struct {
	// Ours and Theirs are the two sides.
	Ours, Theirs Build
}

// Build is one side of a connection.
type Build struct {
	// Program is its name, such as devproxyd.
	Program string
	// Version is the version of its build.
	Version string
	// Contract is the number of the contract it speaks.
	Contract uint32
}

// Error says which side to update: the one with the smaller number.
func (e *IncompatibleError) Error() string {
	older := e.Ours
	if e.TheirsIsOlder() {
		older = e.Theirs
	}
	return fmt.Sprintf("%s %s speaks contract %d and %s %s speaks %d: update %s",
		e.Ours.Program, e.Ours.Version, e.Ours.Contract,
		e.Theirs.Program, e.Theirs.Version, e.Theirs.Contract, older.Program)
}

// TheirsIsOlder reports whether it is the other side that has to be updated.
func (e *IncompatibleError) TheirsIsOlder() bool { return e.Theirs.Contract < e.Ours.Contract }

// Is reports whether target is ErrIncompatible.
func (e *IncompatibleError) Is(target error) bool { return target == ErrIncompatible }

// CheckContract returns an *IncompatibleError unless both builds speak the same
// contract. Different versions of one contract are fine.
func CheckContract(ours, theirs Build) error {
	if ours.Contract == theirs.Contract {
		return nil
	}
	return &IncompatibleError{Ours: ours, Theirs: theirs}
}

// RunningBuild is that of the daemon which told the status.
func RunningBuild(s *Status) Build {
	const first = 1
	d := s.GetDaemon()
	build := Build{Program: "the running devproxyd", Version: d.GetVersion(), Contract: first}
	if d != nil && d.Contract != nil {
		build.Contract = d.GetContract()
	}
	return build
}

// Skew says that two builds which fit together are not the same; empty if they
// are.
func Skew(ours, theirs Build) string {
	if ours.Version == theirs.Version {
		return ""
	}
	return fmt.Sprintf("%s %s talks to %s %s", ours.Program, ours.Version, theirs.Program, theirs.Version)
}

// digestSize is how much of the SHA-256 of an environment value travels: enough
// to notice a difference, too little to be worth keeping.
const digestSize = 8

// EnvironmentDigest is what Hello.environment_digests holds for one value.
func EnvironmentDigest(value string) []byte {
	sum := sha256.Sum256([]byte(value))
	return sum[:digestSize]
}
