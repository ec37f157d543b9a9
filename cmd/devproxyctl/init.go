package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/rewrite"
	"github.com/debugmcp/devproxy/internal/scaffold"
)

// newFileMode is that of a file that belongs to the project.
const newFileMode = 0o666

func newInit(target *cli.Target) *cobra.Command {
	var dryRun, force bool
	var command string
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Look at a project and write its devproxy.toml",
		Long: `Look at a project and write a devproxy.toml that works: at package.json,
pyproject.toml, go.mod and Cargo.toml, at what MCP clients are told in it
(.mcp.json, .cursor/mcp.json, .vscode/mcp.json and others), and at the variables
of mcp-debugger's dev-proxy. It says what it found, what it decided, and why.

The project is DIR, or --project, or the working directory. A devproxy.toml that
is there already is left alone unless --force is given, and then kept as
` + project.ConfigName + rewrite.BackupSuffix + `.`,
		Example: `  devproxyctl init
  devproxyctl init --dry-run > devproxy.toml
  devproxyctl init --command "node dist/index.js --port {port}"`,
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := initProject(target, args)
			if err != nil {
				return err
			}
			file, err := rewrite.Open(p.Config())
			if err != nil {
				return fmt.Errorf("looking at %s: %w", p.Config(), err)
			}
			if file.Exists && !force && !dryRun {
				return fmt.Errorf("%s is there already; --force replaces it and keeps it as %s, --dry-run shows what would be written",
					p.Config(), project.ConfigName+rewrite.BackupSuffix)
			}
			plan, text, err := planFor(p, command)
			if err != nil {
				return err
			}
			if dryRun {
				if err := printPlan(cmd.ErrOrStderr(), plan); err != nil {
					return err
				}
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			backup, err := file.Write(text, newFileMode)
			if err != nil {
				return err
			}
			plan.Found = append([]scaffold.Fact{{Where: "project", What: p.Root}}, plan.Found...)
			return errors.Join(printPlan(cmd.OutOrStdout(), plan), printWritten(cmd.OutOrStdout(), file.Path, backup))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "print the file to stdout, and what was found to stderr, and write nothing")
	flags.BoolVar(&force, "force", false, "replace a devproxy.toml that is there, and keep a backup")
	flags.StringVar(&command, "command", "", "the `COMMAND` that starts the server, where the project does not say it")
	return cmd
}

// initProject is the folder that is to become a project.
func initProject(target *cli.Target, args []string) (project.Project, error) {
	dir := target.Dir
	switch {
	case len(args) == 1 && dir != "":
		return project.Project{}, cli.Usage(errors.New("DIR and --project exclude each other"))
	case len(args) == 1:
		dir = args[0]
	case dir == "":
		dir = "."
	}
	p, err := project.At(dir)
	return p, cli.Usage(err)
}

// planFor decides on the configuration of a project and proves that the daemon
// could read it.
func planFor(p project.Project, command string) (*scaffold.Plan, []byte, error) {
	plan, err := scaffold.Make(scaffold.Source{
		Files: os.DirFS(p.Root), Root: p.Root, OS: runtime.GOOS, Getenv: os.Getenv, Command: command,
	})
	if nothing, ok := errors.AsType[*scaffold.NothingError](err); ok {
		return nil, nil, adviseByHand(p, nothing)
	}
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	text := plan.TOML()
	if _, err := config.Parse(p.Root, text); err != nil {
		return nil, nil, fmt.Errorf("what was found makes no configuration: %w", err)
	}
	return plan, text, nil
}

// adviseByHand says what was looked for, and how to do without.
func adviseByHand(p project.Project, nothing *scaffold.NothingError) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, in %s; looked at:\n", nothing, p.Root)
	for _, fact := range nothing.Looked {
		fmt.Fprintf(&b, "  %s: %s\n", cli.PrintableLine(fact.Where), cli.PrintableLine(fact.What))
	}
	b.WriteString("Say it yourself, with --command \"node dist/index.js\" or by hand in " + project.ConfigName + ":\n" +
		"  [backend]\n  command = [\"node\", \"dist/index.js\"]\n  transport = \"stdio\"   # or http, with {port} in command")
	return errors.New(b.String())
}

// printPlan says what was found and decided, and what to do next.
func printPlan(out io.Writer, plan *scaffold.Plan) error {
	p := page{width: terminalWidth(out)}
	subject := func(name string, i int) string {
		if i > 0 {
			return ""
		}
		return name
	}
	for i, fact := range plan.Found {
		p.row(subject("found", i), "%s: %s", bold.Render(cli.PrintableLine(fact.Where)), cli.PrintableLine(fact.What))
	}
	for i, choice := range plan.Choices() {
		p.row(subject("decided", i), "%-9s %s %s", choice.Key, bold.Render(cli.PrintableLine(choice.Value)), faint.Render("("+cli.PrintableLine(choice.Why)+")"))
	}
	for i, check := range plan.Checks {
		p.row(subject("check", i), "%s", amber.Render(cli.PrintableLine(check)))
	}
	for i, step := range plan.Next {
		p.row(subject("next", i), "%s  %s", bold.Render(cli.PrintableLine(step.Command)), faint.Render("# "+cli.PrintableLine(step.Why)))
	}
	return write(out, p.text.String())
}

func printWritten(out io.Writer, path, backup string) error {
	text := "wrote " + path
	if backup != "" {
		text += ", and kept the one before as " + filepath.Base(backup)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
