package port

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/debugmcp/devproxy/internal/process"
)

// stateListen is TCP_LISTEN in the state column of /proc/net/tcp.
const stateListen = "0A"

// Listeners returns the sockets of this network namespace that listen on the
// port, IPv4 first.
func Listeners(port int) ([]Listener, error) {
	var all []Listener
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		found, err := listenersIn(table, port)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without that family
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func listenersIn(table string, port int) ([]Listener, error) {
	file, err := os.Open(table)
	if err != nil {
		return nil, fmt.Errorf("looking who listens: %w", err)
	}
	defer func() { _ = file.Close() }()
	var found []Listener
	for lines := bufio.NewScanner(file); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return nil, fmt.Errorf("reading %s: %w", table, err)
			}
			return found, nil
		}
		if l, at, ok := parseSocket(lines.Text()); ok && at == port {
			found = append(found, l)
		}
	}
}

// parseSocket reads one line of /proc/net/tcp, described in proc_net_tcp(5), and
// reports whether it is a listening socket.
func parseSocket(line string) (l Listener, port int, ok bool) {
	fields := strings.Fields(line)
	const local, state, uid, inode, least = 1, 3, 7, 9, 10
	if len(fields) < least || fields[state] != stateListen {
		return Listener{}, 0, false
	}
	host, service, ok := strings.Cut(fields[local], ":")
	if !ok {
		return Listener{}, 0, false
	}
	address, err1 := parseAddress(host)
	number, err2 := strconv.ParseUint(service, 16, 16)
	owner, err3 := strconv.ParseUint(fields[uid], 10, 32)
	node, err4 := strconv.ParseUint(fields[inode], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil {
		return Listener{}, 0, false
	}
	return Listener{address: address, inode: node, uid: uint32(owner)}, int(number), true
}

// parseAddress reads an address that the kernel printed as 32-bit words in the
// byte order of the machine.
func parseAddress(text string) (netip.Addr, error) {
	raw, err := hex.DecodeString(text)
	if err != nil {
		return netip.Addr{}, err
	}
	if len(raw) != 4 && len(raw) != 16 {
		return netip.Addr{}, fmt.Errorf("address of %d bytes", len(raw))
	}
	for word := range slices.Chunk(raw, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	address, _ := netip.AddrFromSlice(raw)
	return address, nil
}

// holders returns the processes that have the socket open, as far as they are
// visible to us.
func holders(inode uint64) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if has, _ := hasSocket(pid, inode); has {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func descends(pid, ancestor int) bool { return process.Descends(pid, ancestor) }

// OwnedBy reports whether one of the processes has it open, or may have:
// the descriptors of a process that made itself undumpable are hidden from us.
func (l Listener) OwnedBy(pids []int) bool {
	hidden := false
	for _, pid := range pids {
		has, err := hasSocket(pid, l.inode)
		if has {
			return true
		}
		hidden = hidden || errors.Is(err, fs.ErrPermission)
	}
	return hidden && len(holders(l.inode)) == 0
}

// MayBelongTo reports whether its socket is open in a process that is
// root or descends from it, or may be: because its holders are hidden from us, or
// because root is no process of this machine.
func (l Listener) MayBelongTo(root int) bool {
	pids := holders(l.inode)
	return len(pids) == 0 || !process.Alive(root) || slices.ContainsFunc(pids, func(pid int) bool {
		return process.Descends(pid, root)
	})
}

func hasSocket(pid int, inode uint64) (bool, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	return slices.ContainsFunc(entries, func(entry fs.DirEntry) bool {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		return err == nil && target == want
	}), nil
}
