//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// journal is the file in which all lives of the backend say what they do, one
// line each, written at once:
//
//	<pid> start <DEVPROXY_BACKEND>   before anything else
//	<pid> overlap <DEVPROXY_BACKEND> another life holds the lock
//	<pid> exit <why>                 where it can be said
//	<pid> port-taken                 somebody listens on the port
//	<pid> call <token> <tool>        a tools/call begins
//	<pid> resume <state>             a call goes on with the input it asked for
//	<pid> twice <id>                 a second answer to a question
//	<pid> foreign <id>               an answer to a question of nobody here
//	<pid> headers <what>             an HTTP request's headers contradict its body
type journal struct{ file *os.File }

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return &journal{file: file}, nil
}

// write adds a line. Without it the test would know nothing, so a failure ends
// the process.
func (j *journal) write(what string, words ...string) {
	line := fmt.Sprintf("%d %s\n", os.Getpid(), strings.Join(append([]string{what}, words...), " "))
	if _, err := j.file.WriteString(line); err != nil {
		fmt.Fprintln(os.Stderr, "chaosbackend: writing the journal:", err)
		os.Exit(1)
	}
}

// starts counts the lives so far, this one included.
func (j *journal) starts() int {
	content, err := os.ReadFile(j.file.Name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	return strings.Count(string(content), " start ")
}
