package port

import (
	"net/netip"
	"testing"
)

func TestReachedAt(t *testing.T) {
	at := func(address string) Listener { return Listener{address: netip.MustParseAddr(address)} }
	four, any4, six, any6 := at("127.0.0.1"), at("0.0.0.0"), at("::1"), at("::")
	for _, test := range []struct {
		address string
		all     []Listener
		want    string
	}{
		{"127.0.0.1", []Listener{any4, four, any6}, "127.0.0.1"},
		{"127.0.0.1", []Listener{six, any6, any4}, "0.0.0.0"},
		{"127.0.0.1", []Listener{six, any6}, "::"},
		{"::1", []Listener{any4, any6, six}, "::1"},
		{"::1", []Listener{any4, any6}, "::"},
		{"::1", []Listener{any4, four}, ""},
	} {
		got := ""
		if reached := ReachedAt(netip.MustParseAddr(test.address), test.all); len(reached) > 0 {
			got = reached[0].address.String()
		}
		if got != test.want {
			t.Errorf("%s among %v: %q, want %q", test.address, test.all, got, test.want)
		}
	}
}

func TestTheHolderIsWhoTheOthersHaveItFrom(t *testing.T) {
	parents := map[int]int{12: 30000, 13: 12, 40: 30000}
	descends := func(pid, ancestor int) bool {
		for pid != 0 && pid != ancestor {
			pid = parents[pid]
		}
		return pid == ancestor
	}
	for _, test := range []struct {
		pids []int
		want int
	}{
		{[]int{12, 13, 40, 30000}, 30000},
		{[]int{12, 13}, 12},
		{[]int{13, 40}, 13}, // neither from the other
		{[]int{7}, 7},
	} {
		if got := origin(test.pids, descends); got != test.want {
			t.Errorf("of %v the others have it from %d, want %d", test.pids, got, test.want)
		}
	}
}
