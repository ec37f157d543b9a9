package manual_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/manual"
)

// A page says what a command says, and nothing of it is taken for a request of
// the formatter.
func TestPages(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "Do things", Long: "Does things."}
	cmd := &cobra.Command{
		Use: "do THING", Short: "MCP things are done",
		Long: ".dotted at the start, 'quoted', back\\slash\nand --flag.\n\nSecond paragraph:\n  typed   as it is\n\n" +
			"Exit codes: 0 done; 3 none\nfound. Otherwise the thing's own.",
		Example: "  tool do --name=a-b",
		Run:     func(*cobra.Command, []string) {},
	}
	cmd.Flags().StringP("name", "n", "x", "the `NAME` of it")
	cmd.Flags().Bool("secret", false, "not shown")
	if err := cmd.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	hidden := &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}}
	root.AddCommand(cmd, hidden)
	pages := manual.Pages(root, manual.Source{Version: "v1", Date: time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC)})
	if len(pages) != 2 || pages[0].Name != "tool.1" || pages[1].Name != "tool-do.1" {
		t.Fatalf("the pages are %v", pages)
	}
	text := string(pages[1].Text)
	for _, want := range []string{
		`.TH "TOOL\-DO" 1 2026-02-03 "devproxy v1" "devproxy"`,
		`tool\-do \- MCP things are done`,
		`\fBtool do\fR THING [flags]`,
		"\n" + `\&.dotted at the start, \(aqquoted\(aq, back\eslash` + "\n" + `and \-\-flag.` + "\n.PP\n",
		".nf\ntyped   as it is\n.fi",
		`\fB\-n\fR, \fB\-\-name\fR \fINAME\fR` + "\nthe NAME of it (default: x)",
		`\fB3\fR` + "\nnone found\n.PP\nOtherwise the thing\\(aqs own.",
		".nf\ntool do \\-\\-name=a\\-b\n.fi",
		`\fBtool\fR(1)`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(string(pages[0].Text), "hidden") {
		t.Errorf("the pages tell what is hidden:\n%s", text)
	}
}
