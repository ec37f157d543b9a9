package main

import (
	"flag"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/manual"
)

// "make man" says where man pages go, and of which date they are.
var (
	manualDir  = flag.String("man", "", "write the man page into `DIR`")
	manualDate = flag.String("date", "2026-01-01", "date of the man page")
)

// The shim has no command line library, and so no page of its own making: what
// its page is made of is what it says with --help.
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
	page := &cobra.Command{
		Use: "devproxy-shim", Short: "Connect an MCP client to the devproxy daemon of a project", Long: about,
		Example: "  devproxyctl register claude-code\n  devproxy-shim --project ~/work/my-server",
		Run:     func(*cobra.Command, []string) {},
	}
	flags, _ := newFlags()
	page.Flags().AddGoFlagSet(flags)
	if err := manual.Write(dir, page, manual.Source{Version: buildVersion(), Date: date}); err != nil {
		t.Fatal(err)
	}
}
