package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxEnviron bounds what is read of one environment. The kernel allows arguments and
	// environment together a quarter of the stack limit, at most 6 MiB.
	maxEnviron = 6 << 20

	kernelThread = 0x00200000 // PF_KTHREAD in the flags of stat
)

// stat is what /proc/<pid>/stat says of a process.
type stat struct {
	pid, parent, group, session int
	state                       byte
	flags                       uint64
	threads                     int
	start                       uint64 // clock ticks since boot
	user, system                uint64 // clock ticks run so far
	resident                    uint64 // pages in memory
}

// dead reports whether nothing of the process runs any more. A zombie with more than one thread
// is a live process whose main thread has ended.
func (s stat) dead() bool {
	return (s.state == 'Z' || s.state == 'X') && s.threads <= 1
}

func (s stat) zombie() bool { return s.state == 'Z' && s.threads <= 1 }

// readStat reads the stat line of pid. A missing process is an error that wraps fs.ErrNotExist
// or ESRCH, see vanished.
func readStat(pid int) (stat, error) {
	line, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(line))
}

// parseStat reads proc_pid_stat(5). The command name stands in parentheses and may contain
// anything, parentheses included, so the fields are counted from its last one.
func parseStat(line string) (stat, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("unexpected process stat %q", line)
	}
	fields := strings.Fields(line[end+1:])
	const first = 3 // number of fields[0] in the manual page
	if len(fields) <= 24-first || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("unexpected process stat %q", line)
	}
	var err error
	number := func(field int) uint64 {
		n, e := strconv.ParseInt(fields[field-first], 10, 64)
		err = errors.Join(err, e)
		return uint64(n)
	}
	pid, e := strconv.Atoi(strings.TrimSpace(line[:open]))
	s := stat{
		pid:     pid,
		state:   fields[0][0],
		parent:  int(number(4)),
		group:   int(number(5)),
		session: int(number(6)),
		flags:   number(9),
		threads: int(number(20)),
		start:   number(22),

		user:     number(14),
		system:   number(15),
		resident: number(24),
	}
	if err = errors.Join(err, e); err != nil {
		return stat{}, fmt.Errorf("unexpected process stat %q: %w", line, err)
	}
	return s, nil
}

// listStats reads the stat of every process that is there. Processes come and go meanwhile, so
// one listing proves nothing about absence; see group.await.
func listStats() ([]stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing /proc: %w", err)
	}
	stats := make([]stat, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		if err == nil {
			stats = append(stats, s)
		} else if !vanished(err) {
			return nil, err
		}
	}
	return stats, nil
}

// vanished reports whether err says that a process is not there (any more).
func vanished(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// markerOf reads the marker in the environment that pid was executed with. It is empty for
// processes of other users, for the unmarked, and where it cannot be read.
func markerOf(pid int) string {
	file, err := os.Open(procPath(pid, "environ"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	// The file belongs to the process's effective user. Root could read everybody's, and then
	// anyone could have his process taken for ours by setting a variable.
	var info unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &info); err != nil || int(info.Uid) != os.Geteuid() {
		return ""
	}
	environ, err := io.ReadAll(io.LimitReader(file, maxEnviron))
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(MarkerVariable+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// kinship says who stands above and below us in a listing.
type kinship map[int]int // from a process to its parent

func kin(stats []stat) kinship {
	k := make(kinship, len(stats))
	for _, s := range stats {
		k[s.pid] = s.parent
	}
	return k
}

// above reports whether ancestor is pid itself or stands above it. A listing is no snapshot and
// may contain a circle, so the way up is bounded by its size.
func (k kinship) above(ancestor, pid int) bool {
	for range len(k) + 1 {
		if pid == ancestor {
			return true
		}
		if pid = k[pid]; pid == 0 {
			break
		}
	}
	return false
}

// Descends reports whether pid is ancestor or stands below it.
func Descends(pid, ancestor int) bool {
	stats, err := listStats()
	return err == nil && kin(stats).above(ancestor, pid)
}

func procPath(pid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + name
}
