package client

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// Contract is the number of the attach contract that this build speaks, as in
// Hello.contract and Welcome.contract. It grows only with a change that an
// older side would misunderstand; additions do not count.
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

// IncompatibleError says that two builds do not speak the same attach contract.
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
	// Contract is the number of the attach contract it speaks.
	Contract uint32
}

// Error says which side to update: the one with the smaller number.
func (e *IncompatibleError) Error() string {
	older := e.Ours
	if e.Theirs.Contract < e.Ours.Contract {
		older = e.Theirs
	}
	return fmt.Sprintf("%s %s speaks attach contract %d and %s %s speaks %d: update %s",
		e.Ours.Program, e.Ours.Version, e.Ours.Contract,
		e.Theirs.Program, e.Theirs.Version, e.Theirs.Contract, older.Program)
}

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

// digestSize is how much of the SHA-256 of an environment value travels: enough
// to notice a difference, too little to be worth keeping.
const digestSize = 8

// EnvironmentDigest is what Hello.environment_digests holds for one value.
func EnvironmentDigest(value string) []byte {
	sum := sha256.Sum256([]byte(value))
	return sum[:digestSize]
}
