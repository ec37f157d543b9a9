package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagWords says what is wrong with a flag, without the words of the library and
// of the Go function that has read it.
func flagWords(cmd *cobra.Command, err error) error {
	see := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if unknown.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("there is no flag -%s; %s", unknown.GetSpecifiedName(), see)
		}
		if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
			see = fmt.Sprintf("did you mean --%s?", near)
		}
		return fmt.Errorf("there is no flag --%s; %s", unknown.GetSpecifiedName(), see)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		what, _ := pflag.UnquoteUsage(missing.GetFlag())
		return fmt.Errorf("--%s needs a value, %s; %s", missing.GetFlag().Name, what, see)
	}
	if syntax, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("%s is no flag; %s", syntax.GetSpecifiedFlag(), see)
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s %s: %s; %s", invalid.GetFlag().Name, invalid.GetValue(), want(invalid.Unwrap()), see)
	}
	return fmt.Errorf("%w; %s", err, see)
}

// want says what a value should have been.
func want(cause error) string {
	number, isNumber := errors.AsType[*strconv.NumError](cause)
	switch {
	case isNumber && errors.Is(number.Err, strconv.ErrRange):
		return "that is out of range"
	case isNumber && number.Func == "ParseBool":
		return "want true or false"
	case isNumber && number.Func == "ParseUint":
		return "want a whole number, 0 or more"
	case isNumber && number.Func == "ParseFloat":
		return "want a number"
	case isNumber:
		return "want a whole number"
	case strings.HasPrefix(cause.Error(), "time: "):
		return "want a duration, such as 90s or 10m"
	}
	return cause.Error()
}

// nearestFlag is the flag that a person most likely meant, measured as commands
// are. A slip is seldom in the first letter, and short names are all alike.
func nearestFlag(cmd *cobra.Command, name string) string {
	flags := &cobra.Command{SuggestionsMinimumDistance: suggested}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			flags.AddCommand(&cobra.Command{Use: flag.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	for _, close := range flags.SuggestionsFor(name) {
		if close[:1] == name[:1] {
			return close
		}
	}
	return ""
}

// argsWords says what is wrong with the number of arguments, and passes on what
// else a check of them objects to.
func argsWords(cmd *cobra.Command, args []string, check cobra.PositionalArgs, err error) error {
	least, most := accepted(cmd, check, len(args))
	takes := strings.TrimSpace(strings.TrimPrefix(cmd.Use, cmd.Name()))
	switch {
	case most < 0:
	case len(args) > most && most == 0:
		err = fmt.Errorf("%s takes no arguments, and got %q", cmd.CommandPath(), args[0])
	case len(args) > most:
		err = fmt.Errorf("%s takes %s, and got %q too", cmd.CommandPath(), takes, args[most])
	case len(args) < least:
		err = fmt.Errorf("%s needs %s", cmd.CommandPath(), takes)
	}
	return Usage(fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help"))
}

// accepted is how many arguments a check lets pass; most is negative if it has
// other objections.
func accepted(cmd *cobra.Command, check cobra.PositionalArgs, given int) (least, most int) {
	word := "word"
	if len(cmd.ValidArgs) > 0 {
		word = cmd.ValidArgs[0]
	}
	least, most = -1, -1
	const more = 3
	for n := range given + more {
		if check(cmd, slices.Repeat([]string{word}, n)) != nil {
			continue
		}
		if least < 0 {
			least = n
		}
		most = n
	}
	return least, most
}

// newHelp is cobra's command of that name, for which a command that there is none
// of is an error.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			at, _ := below(root, args)
			var names []string
			for _, c := range at.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			at, rest := below(root, args)
			if err := Group(at, rest); err != nil {
				return err
			}
			return at.Help()
		},
	}
}

// below follows the names of commands as far as there are some.
func below(cmd *cobra.Command, names []string) (*cobra.Command, []string) {
	for i, name := range names {
		at := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) })
		if at < 0 {
			return cmd, names[i:]
		}
		cmd = cmd.Commands()[at]
	}
	return cmd, nil
}
