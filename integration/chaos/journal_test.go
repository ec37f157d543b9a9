//go:build unix

package chaos

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// journal is what the backend's lives wrote, read as it grows.
type journal struct {
	path string

	mu      sync.Mutex // guards what follows
	offset  int64
	calls   map[string]int // executions by token
	resumes map[string]int // by state
	starts  int
}

func newJournal(path string) *journal {
	return &journal{path: path, calls: map[string]int{}, resumes: map[string]int{}}
}

// follow reads what is new and returns what must not be there.
func (j *journal) follow(note func(line string)) (faults []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines, err := j.fresh()
	if err != nil {
		return []string{"reading the journal: " + err.Error()}
	}
	for _, line := range lines {
		note(line)
		words := strings.Fields(line)
		if len(words) < 2 {
			faults = append(faults, "the journal has the line "+line)
			continue
		}
		switch words[1] {
		case "start":
			j.starts++
		case "overlap":
			faults = append(faults, "two backends live at once: "+line)
		case "call":
			if j.calls[words[2]]++; j.calls[words[2]] > 1 {
				faults = append(faults, "a tools/call is executed a second time: "+line)
			}
		case "resume":
			if j.resumes[words[2]]++; j.resumes[words[2]] > 1 {
				faults = append(faults, "a call is resumed a second time: "+line)
			}
		case "twice":
			faults = append(faults, "the backend got a second answer to its question: "+line)
		case "foreign":
			faults = append(faults, "the backend got an answer to a question that it never asked: "+line)
		case "headers":
			faults = append(faults, "headers and body of a request differ: "+line)
		}
	}
	return faults
}

// fresh returns the whole lines behind the last ones.
func (j *journal) fresh() ([]string, error) {
	file, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.NewSectionReader(file, j.offset, 1<<30))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(content, '\n') + 1
	j.offset += int64(end)
	return strings.Split(strings.TrimSuffix(string(content[:end]), "\n"), "\n")[:bytes.Count(content[:end], []byte("\n"))], nil
}

// executed returns how often the call with this token was executed.
func (j *journal) executed(token string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.calls[token]
}

// totals returns how many calls were executed in how many lives.
func (j *journal) totals() (executed, starts int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.calls), j.starts
}

// followJournal reads on in the journal.
func (w *world) followJournal() {
	for _, fault := range w.journal.follow(func(line string) { w.timeline.notef("backend", "%s", line) }) {
		w.violatef("backend", "%s", fault)
	}
}

// checkSuccesses compares what clients were told with what was executed.
func (w *world) checkSuccesses() {
	w.followJournal()
	for _, c := range w.clients {
		c.mu.Lock()
		for _, token := range c.successes {
			if n := w.journal.executed(token); n != 1 {
				w.violatef(c.name, "call %s was answered with success and executed %d times", token, n)
			}
		}
		c.mu.Unlock()
	}
}
