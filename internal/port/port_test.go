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
