package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// Shell is the Spec that runs command through the platform's shell: /bin/sh -c, or cmd /C on
// Windows. Dir, Env and Marker are left to the caller.
func Shell(command string) (Spec, error) {
	path, err := shellPath()
	if err != nil {
		return Spec{}, err
	}
	return Spec{Path: path, verbatim: shellLine(path, command)}, nil
}

func shellPath() (string, error) {
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return "", fmt.Errorf("finding the shell: %w", err)
	}
	return system + `\cmd.exe`, nil
}

// shellLine is the command line of a shell that runs command. cmd does not unquote as other programs
// do. With /S it drops the outer quotes and takes the rest as it is; /D keeps the user's AutoRun
// commands out, /E:ON and /V:OFF what the registry may say of extensions and of "!".
func shellLine(path, command string) string {
	return `"` + path + `" /D /E:ON /V:OFF /S /C "` + command + `"`
}

// throughShell gives the Spec of a batch file, such as npx.cmd, as one for the shell that must run it,
// and any other as it is. CreateProcess takes batch files only by accident, and then with
// arguments quoted for programs, which cmd reads otherwise: an "&" would begin a second command.
func throughShell(spec Spec) (Spec, error) {
	extension := strings.ToLower(filepath.Ext(spec.Path))
	if spec.verbatim != "" || extension != ".bat" && extension != ".cmd" {
		return spec, nil
	}
	if _, err := os.Stat(spec.Path); err != nil {
		return Spec{}, err // as the system would say it; the shell has words of its own
	}
	words := []string{`"` + spec.Path + `"`}
	for _, argument := range spec.Args {
		word, err := batchWord(argument)
		if err != nil {
			return Spec{}, err
		}
		words = append(words, word)
	}
	shell, err := shellPath()
	if err != nil {
		return Spec{}, err
	}
	spec.Path, spec.Args, spec.verbatim = shell, nil, shellLine(shell, strings.Join(words, " "))
	return spec, nil
}

// batchWord quotes an argument so that cmd passes it on as it is, and the program to which a batch
// file gives it (%*) reads it as one. A quote becomes two, which leaves cmd inside of quotes; programs
// of Microsoft's C library, as node and python are, read them as one, those of Go do not.
func batchWord(argument string) (string, error) {
	if strings.ContainsAny(argument, "\r\n") {
		return "", fmt.Errorf("argument %q: a batch file cannot be given a line break", argument)
	}
	if argument != "" && strings.Trim(argument, plainInBatch) == "" {
		return argument, nil
	}
	var word strings.Builder
	word.WriteByte('"')
	backslashes := 0
	for _, r := range argument {
		switch r {
		case '"':
			// For a program backslashes before a quote are escapes.
			word.WriteString(strings.Repeat(`\`, backslashes) + `"`)
		case '%':
			// Variables are replaced inside of quotes too. %cd:~,% is an empty piece of the working
			// directory, which keeps this sign from being the begin or the end of another one.
			word.WriteString("%%cd:~,")
		}
		word.WriteRune(r)
		backslashes++
		if r != '\\' {
			backslashes = 0
		}
	}
	word.WriteString(strings.Repeat(`\`, backslashes) + `"`)
	return word.String(), nil
}

// plainInBatch are the characters that need no quotes: they mean nothing to cmd nor to the division of a
// command line into words.
const plainInBatch = `abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:\@#$+*?`
