package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/debugmcp/devproxy/internal/process"
)

// addressInUse reports whether a bind failed because somebody listens there;
// access is denied where he bound the port for himself alone.
func addressInUse(err error) bool {
	return errors.Is(err, windows.WSAEADDRINUSE) || errors.Is(err, windows.WSAEACCES)
}

// ownerPIDListener is TCP_TABLE_OWNER_PID_LISTENER of iprtrmib.h.
const ownerPIDListener = 3

var getExtendedTCPTable = windows.NewLazySystemDLL("iphlpapi.dll").NewProc("GetExtendedTcpTable")

// tcpTable says where in a row of a table the system puts what.
type tcpTable struct {
	family                      uint32
	row                         int // size of a row
	address, port, pid, addrLen int
}

// tcpTables are MIB_TCPTABLE_OWNER_PID and MIB_TCP6TABLE_OWNER_PID: the number of
// rows and then the rows, all of it in words of 32 bits.
func tcpTables() []tcpTable {
	return []tcpTable{
		{family: windows.AF_INET, row: 24, address: 4, addrLen: 4, port: 8, pid: 20},
		{family: windows.AF_INET6, row: 56, address: 0, addrLen: 16, port: 20, pid: 52},
	}
}

// Listeners returns the sockets that listen on the port and of which it is known
// who has bound them, IPv4 first. Here the inode of a listener is that process.
func Listeners(port int) ([]Listener, error) {
	var all []Listener
	for _, table := range tcpTables() {
		content, err := table.read()
		if err != nil {
			return nil, fmt.Errorf("looking who listens: %w", err)
		}
		all = append(all, table.listeners(content, port)...)
	}
	return all, nil
}

func (t tcpTable) read() ([]byte, error) {
	var size uint32
	var content []byte
	for {
		var at unsafe.Pointer
		if size > 0 {
			content = make([]byte, size)
			at = unsafe.Pointer(&content[0])
		}
		code, _, _ := getExtendedTCPTable.Call(uintptr(at), uintptr(unsafe.Pointer(&size)), 0,
			uintptr(t.family), ownerPIDListener, 0)
		switch windows.Errno(code) {
		case windows.ERROR_SUCCESS:
			return content, nil
		case windows.ERROR_INSUFFICIENT_BUFFER: // size says how much is needed now
		default:
			return nil, windows.Errno(code)
		}
	}
}

func (t tcpTable) listeners(content []byte, port int) []Listener {
	if len(content) < 4 {
		return nil
	}
	var found []Listener
	rows := binary.LittleEndian.Uint32(content)
	for row := range slices.Chunk(content[4:], t.row) {
		if rows == 0 || len(row) < t.row {
			break
		}
		rows--
		// The port is in network order, in the first half of its word. A pid of 0
		// says that it is not known who has bound it.
		at, pid := int(binary.BigEndian.Uint16(row[t.port:])), binary.LittleEndian.Uint32(row[t.pid:])
		if at != port || pid == 0 {
			continue
		}
		address, _ := netip.AddrFromSlice(row[t.address : t.address+t.addrLen])
		found = append(found, Listener{address: address, inode: uint64(pid)})
	}
	return found
}

func holders(pid uint64) []int { return []int{int(pid)} }

// descends has no use: there is one holder at most.
func descends(int, int) bool { return false }

// OwnedBy reports whether one of the processes has bound the socket, or may have
// it from one that has ended.
func (l Listener) OwnedBy(pids []int) bool {
	return slices.Contains(pids, int(l.inode)) || !process.Alive(int(l.inode))
}

// MayBelongTo cannot tell: what a container listens on is bound by the engine's own programs.
func (Listener) MayBelongTo(int) bool { return true }
