//go:build unix

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/watch"
)

// builds runs a watcher on a folder, and the builds that write a file of it.
func builds(t *testing.T) (b *buildings, file string) {
	t.Helper()
	root := t.TempDir()
	file = filepath.Join(root, "dist", "main.js")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, file, "0")
	w, err := watch.New(watch.Config{Root: root, Paths: []string{filepath.Dir(file)}, Settle: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel(nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if _, err := w.Baseline(t.Context()); err != nil {
		t.Fatal(err)
	}
	return newBuildings(w, slog.New(slog.DiscardHandler)), file
}

// Who has built, and how it ended, decides whether what is there is a change; of
// builds that meet, the good one.
func TestBuildsAndWhatComesOfThem(t *testing.T) {
	const good, bad, gone, own, ownBad = "good", "bad", "gone", "own", "own that fails"
	for i, test := range []struct {
		ends    []string // of builds that all begin before the first of them
		changed bool
	}{
		{[]string{good}, true},
		{[]string{bad}, false},
		{[]string{gone}, true},
		{[]string{ownBad}, false},
		{[]string{bad, bad}, false},
		{[]string{bad, good}, true},
		{[]string{good, bad}, true},
		{[]string{good, ownBad}, true},
		{[]string{ownBad, good}, true},
		{[]string{gone, bad}, true},
		{[]string{bad, own}, true}, // until the restart that it asks for takes what is there
	} {
		b, file := builds(t)
		var ends []func()
		for _, how := range test.ends {
			switch how {
			case own, ownBad:
				release := b.begin()
				ends = append(ends, func() { b.finish(t.Context(), release, how == ownBad) })
			default:
				c := b.beginCaller(how)
				message := ""
				if how == bad {
					message = "exit status 1"
				}
				ends = append(ends, func() { b.endCaller(t.Context(), c, message, how != gone) })
			}
		}
		write(t, file, fmt.Sprint(i+1))
		for _, end := range ends {
			end()
		}
		// The file that is no build's is a change in any case.
		write(t, filepath.Join(filepath.Dir(file), "other.js"), "")
		changed := false
		for other := false; !other; {
			paths := (<-b.watcher.Changes()).Paths
			changed = changed || slices.Contains(paths, file)
			other = slices.ContainsFunc(paths, func(path string) bool { return filepath.Base(path) == "other.js" })
		}
		if changed != test.changed {
			t.Errorf("%v: a change is %v, want %v", test.ends, changed, test.changed)
		}
	}
}

// A start waits for the builds of people, until somebody insists.
func TestStartsWaitForBuilds(t *testing.T) {
	b, _ := builds(t)
	c := b.beginCaller("make")
	if seen, wait := b.look(); !wait || seen.command != "make" || !seen.Running {
		t.Errorf("it is seen as %+v, %v", seen, wait)
	}
	started := make(chan error, 2)
	for range cap(started) {
		go func() {
			_, err := b.baseline(t.Context())
			started <- err
		}()
	}
	select {
	case <-started:
		t.Error("a start did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	end := b.insist()
	for range cap(started) {
		if err := <-started; err != nil {
			t.Error(err)
		}
	}
	if _, wait := b.look(); wait {
		t.Error("it still waits")
	}
	end()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("abandoned"))
	if _, err := b.baseline(ctx); err == nil || err.Error() != "abandoned" {
		t.Errorf("a start that is abandoned: %v", err)
	}
	b.endCaller(t.Context(), c, "exit status 1", true)
	if seen, wait := b.look(); wait || seen.Running || seen.OK || seen.Message != "the build failed: exit status 1" {
		t.Errorf("afterwards it is seen as %+v, %v", seen, wait)
	}
}

// Status shows the build that runs, else the later one.
func TestTheBuildThatIsShown(t *testing.T) {
	at := func(seconds int, running bool) backend.Build {
		return backend.Build{StartedAt: time.Unix(int64(seconds), 0), Running: running}
	}
	own := func(b backend.Build) *backend.Build { return &b }
	for name, test := range map[string]struct {
		own    *backend.Build
		theirs *seenBuild
		want   string
	}{
		"none":              {nil, nil, ""},
		"own":               {own(at(1, false)), nil, "own"},
		"theirs":            {nil, &seenBuild{"theirs", true, at(1, false)}, "theirs"},
		"own later":         {own(at(2, false)), &seenBuild{"theirs", true, at(1, false)}, "own"},
		"theirs later":      {own(at(1, false)), &seenBuild{"theirs", true, at(2, false)}, "theirs"},
		"own runs":          {own(at(1, true)), &seenBuild{"theirs", true, at(2, false)}, "own"},
		"theirs runs":       {own(at(2, false)), &seenBuild{"theirs", true, at(1, true)}, "theirs"},
		"both run, own new": {own(at(2, true)), &seenBuild{"theirs", true, at(1, true)}, "own"},
	} {
		v := view{build: "own", callerBuild: test.theirs}
		v.backend.LastBuild = test.own
		got := ""
		if b := v.lastBuild(); b != nil {
			got = b.command
		}
		if got != test.want {
			t.Errorf("%s: %q is shown, want %q", name, got, test.want)
		}
	}
}
