package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// gateVariable marks the gate child. It never reaches the command: the command's environment
// comes through the gate. For the same reason nothing in that environment (GOMEMLIMIT, GODEBUG)
// can disturb the gate, and duplicates survive.
const gateVariable = "DEVPROXY_GATE"

const (
	// maxMessage bounds what passes the gate. The kernel's own limit for arguments and
	// environment is lower on every platform, so this only stops nonsense.
	maxMessage = 16 << 20

	// exitNotRun is the gate's exit code when the command cannot be run, as shells have it.
	exitNotRun = 127
)

// Main must be the first statement of main in every program that calls [Start], and of TestMain
// in tests that do. In a gate child it waits for the release, then becomes the command or exits,
// and never returns. Everywhere else it returns at once.
func Main() {
	if !insideGate() {
		return
	}
	// A variable without its pipe came from somebody's shell, not from Start.
	if !openGate(os.Getenv(gateVariable)) {
		_ = os.Unsetenv(gateVariable)
	}
}

func insideGate() bool { return os.Getenv(gateVariable) != "" }

// gateArgs are the gate's arguments: the name under which this program was called, since one
// that is several programs in one file must turn to the same one again, and a word for ps.
func gateArgs() []string { return []string{os.Args[0], "(gate)"} }

// runGate waits at the gate, and does not return. An end of input instead of a release means that
// the one who started us died or changed his mind; nobody is there to be told.
func runGate(gate, status *os.File) {
	spec, err := decode(gate)
	if err != nil {
		os.Exit(0) //nolint:forbidigo // the gate is a program of its own, this is its main
	}
	_, _ = status.Write(encodeFailure(become(spec, gate, status)))
	os.Exit(exitNotRun) //nolint:forbidigo // the gate is a program of its own, this is its main
}

// encode writes down the command for the gate: a length, then NUL-terminated fields. NUL is the
// one byte that paths, arguments and environments cannot contain, so every other passes as it is.
func encode(spec Spec) ([]byte, error) {
	if spec.Path == "" {
		return nil, errors.New("starting a process: no program given")
	}
	fields := []string{spec.Dir, spec.Path, spec.verbatim, strconv.Itoa(len(spec.Args))}
	fields = append(fields, spec.Args...)
	fields = append(fields, markerEnv(spec.Env, spec.Marker)...)
	if i := slices.IndexFunc(fields, hasNUL); i >= 0 {
		return nil, fmt.Errorf("starting %s: NUL byte in %q", spec.Path, fields[i])
	}
	body := strings.Join(fields, "\x00")
	if len(body) > maxMessage {
		return nil, fmt.Errorf("starting %s: arguments and environment take %d bytes, over the limit of %d",
			spec.Path, len(body), maxMessage)
	}
	message := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	return append(message, body...), nil
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// decode reads what encode wrote. The returned Env is complete, marker included.
func decode(r io.Reader) (Spec, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Spec{}, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxMessage {
		return Spec{}, errors.New("gate message too long")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return Spec{}, err
	}
	fields := strings.Split(string(body), "\x00")
	if len(fields) < 4 {
		return Spec{}, errors.New("gate message too short")
	}
	spec := Spec{Dir: fields[0], Path: fields[1], verbatim: fields[2]}
	count, err := strconv.Atoi(fields[3])
	fields = fields[4:]
	if err != nil || count < 0 || count > len(fields) {
		return Spec{}, errors.New("gate message has a wrong argument count")
	}
	spec.Args, spec.Env = fields[:count], fields[count:]
	return spec, nil
}

// ExecError says that the command cannot be run.
type ExecError struct {
	Op     string // "running", or "entering directory"
	Path   string // the program's file, or the directory
	Reason string // the operating system's reason in words, and what it means where it misleads
	Err    error  // the operating system's reason, for errors.Is
}

func (e *ExecError) Error() string { return e.Op + " " + e.Path + ": " + e.Reason }

func (e *ExecError) Unwrap() error { return e.Err }

func newExecError(op, path string, err error) *ExecError {
	failure := &ExecError{Op: op, Path: path, Reason: err.Error(), Err: err}
	if op == opRun && errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(path); statErr == nil {
			failure.Reason = "the interpreter in its first line is missing: " + failure.Reason
		}
	}
	return failure
}

const (
	opRun   = "running"
	opEnter = "entering directory"
)

// encodeFailure writes the gate's reply: a length, then operation, path, error number and reason.
// Without a failure there is nothing behind a length of 0.
func encodeFailure(failure *ExecError) []byte {
	var body string
	if failure != nil {
		number, _ := errors.AsType[syscall.Errno](failure.Err)
		body = strings.Join([]string{
			failure.Op, failure.Path, strconv.FormatUint(uint64(number), 10), failure.Reason,
		}, "\x00")
	}
	reply := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	return append(reply, body...)
}

// decodeFailure reads what encodeFailure wrote, and returns nil for success. Where the gate
// becomes the command it cannot write any more: the pipe closing on exec says that it did.
func decodeFailure(status io.Reader) error {
	var head [4]byte
	_, err := io.ReadFull(status, head[:])
	if errors.Is(err, io.EOF) && execClosesStatus {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	body := make([]byte, min(binary.BigEndian.Uint32(head[:]), maxMessage))
	if _, err := io.ReadFull(status, body); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	if len(body) == 0 {
		return nil
	}
	fields := strings.SplitN(string(body), "\x00", 4)
	if len(fields) < 4 {
		return fmt.Errorf("running the command: unexpected reply %q of the gate", body)
	}
	failure := &ExecError{Op: fields[0], Path: fields[1], Reason: fields[3]}
	if number, err := strconv.ParseUint(fields[2], 10, 32); err == nil && number != 0 {
		failure.Err = syscall.Errno(number)
	}
	return failure
}
