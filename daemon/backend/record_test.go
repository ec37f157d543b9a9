//go:build unix

package backend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/internal/process"
)

// A record that is spoilt, or that names somebody who is not the orphan, stands
// in the way of no start, and harms nobody.
func TestARecordThatMeansNobody(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"no record at all": func(path string) error { return os.WriteFile(path, []byte(`{"process":{"pid":`), 0o600) },
		"its pid is ours by now": func(path string) error {
			return writeRecord(path, record{Process: process.Identity{BootID: "another", PID: os.Getpid(), StartTime: 1}, Generation: 7})
		},
		"its pid is that of the first process": func(path string) error {
			return writeRecord(path, record{Process: process.Identity{PID: 1}, Generation: 7})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := spoil(filepath.Join(dir, "backend.json")); err != nil {
				t.Fatal(err)
			}
			h := newHouseIn(t, dir, strings.ReplaceAll(markerOf(t), " ", "-"), selfAs("stdio"))
			status := h.mustStart()
			if r, found, err := readRecord(filepath.Join(dir, "backend.json")); !found || err != nil || r.Process.PID != status.PID {
				t.Errorf("the record is now %+v, %v, %v", r, found, err)
			}
		})
	}
}
