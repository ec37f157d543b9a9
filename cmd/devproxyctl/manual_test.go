package main

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/manual"
)

// "make man" says where man pages go, and of which date they are.
var (
	manualDir  = flag.String("man", "", "write the man pages into `DIR`")
	manualDate = flag.String("date", "2026-01-01", "date of the man pages")
)

func TestManual(t *testing.T) {
	t.Setenv("DEVPROXY_SOCKET", "") // it would be the default of --socket
	dir := *manualDir
	if dir == "" {
		dir = t.TempDir()
	}
	date, err := time.Parse(time.DateOnly, *manualDate)
	if err != nil {
		t.Fatal(err)
	}
	if err := manual.Write(dir, newRoot(), manual.Source{Version: cli.Version(version), Date: date}); err != nil {
		t.Fatal(err)
	}
}

// What a command is for is told in a line, in a paragraph and by an example.
func TestEveryCommandExplainsItself(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		for what, text := range map[string]string{"Short": cmd.Short, "Long": cmd.Long, "Example": cmd.Example} {
			if text == "" {
				t.Errorf("%q has no %s", cmd.CommandPath(), what)
			}
		}
		if strings.HasSuffix(cmd.Short, ".") || strings.Contains(cmd.Short, "\n") {
			t.Errorf("%q has the Short %q, want a line without a full stop", cmd.CommandPath(), cmd.Short)
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(line, "  ") && strings.TrimSpace(line) != "" {
				t.Errorf("%q has an example that is not indented: %q", cmd.CommandPath(), line)
			}
		}
		if cmd.HasParent() && !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%q has examples that do not show it:\n%s", cmd.CommandPath(), cmd.Example)
		}
		for _, below := range cmd.Commands() {
			check(below)
		}
	}
	check(newRoot())
}
