package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// shells are what a completion script can be had for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// AddCompletion adds the command that prints a completion script to root, which
// has all its other commands already. What does not say how it is completed is
// completed with nothing: the name of a file is right in few places, and wrong
// in all others.
func AddCompletion(root *cobra.Command) {
	root.AddCommand(newCompletion(root.Name()))
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if what, _ := pflag.UnquoteUsage(flag); what == "FILE" || what == "PATH" {
				// Fails where the flag has a completion of its own, which stays.
				_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
			}
		})
	})
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, below := range cmd.Commands() {
		eachCommand(below, do)
	}
}

func newCompletion(program string) *cobra.Command {
	const long = `Print a script that has the shell complete the commands of PROGRAM, their flags
and what follows them: names of tools and clients, sessions, folders. It asks the
program at each press of the Tab key, which asks a daemon that runs, for a second
at most, and starts nothing.

  bash         needs the package bash-completion; into
               ~/.local/share/bash-completion/completions/PROGRAM
  zsh          into a folder of $fpath, named _PROGRAM
  fish         into ~/.config/fish/completions/PROGRAM.fish
  powershell   at the end of $PROFILE, piped into Out-String | Invoke-Expression`
	const example = `  source <(PROGRAM completion bash)
  PROGRAM completion zsh > "${fpath[1]}/_PROGRAM"
  PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish
  PROGRAM completion powershell | Out-String | Invoke-Expression`
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print a completion script for bash, zsh, fish or powershell",
		Long:      strings.ReplaceAll(long, "PROGRAM", program),
		Example:   strings.ReplaceAll(example, "PROGRAM", program),
		Args:      Args(cobra.MatchAll(cobra.ExactArgs(1), oneOf(shells))),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return printCompletion(cmd.OutOrStdout(), cmd.Root(), args[0])
		},
	}
}

// oneOf is cobra.OnlyValidArgs with words that help.
func oneOf(words []string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.OnlyValidArgs(cmd, args); err != nil {
			return fmt.Errorf("%q is none of %s", args[0], strings.Join(words, ", "))
		}
		return nil
	}
}

func printCompletion(out io.Writer, root *cobra.Command, shell string) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(out, true)
	case "zsh":
		return root.GenZshCompletion(out)
	case "fish":
		return root.GenFishCompletion(out, true)
	default:
		return root.GenPowerShellCompletionWithDesc(out)
	}
}
