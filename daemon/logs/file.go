package logs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	// fileMegabytes and fileBackups bound the disk that one project's log takes.
	fileMegabytes = 5
	fileBackups   = 3
)

// File is a log file that is rotated at 5 MiB and keeps three predecessors. Its
// directory must exist; the file is made 0600 by the first line. Its methods may
// be called from any goroutine. A file that cannot be written to stops nobody;
// Close tells.
type File struct {
	file *lumberjack.Logger

	mu    sync.Mutex
	fault error // the first of a write
}

// NewFile names the file.
func NewFile(path string) *File {
	return &File{file: &lumberjack.Logger{Filename: path, MaxSize: fileMegabytes, MaxBackups: fileBackups}}
}

// Append writes a line. Secrets are to be hidden in its text before.
func (f *File) Append(e Entry) {
	source := string(e.Source)
	if e.Generation > 0 {
		source = fmt.Sprintf("%s#%d", source, e.Generation)
	}
	f.write(fmt.Sprintf("%s %s %s %s\n", e.Time.Format(timeFormat), source, e.Stream, clean(e.Text)))
}

// timeFormat has the width of a column, and the zone for who reads it elsewhere.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// Handler logs to the file, from slog.LevelInfo on. mask hides the secrets of the
// moment in each line; nil hides the usual forms of credentials.
func (f *File) Handler(mask func(string) string) slog.Handler {
	if mask == nil {
		mask = (*Masker)(nil).Mask
	}
	return newLineHandler(slog.LevelInfo, func(e Entry) {
		e.Text = mask(e.Text)
		f.Append(e)
	})
}

// Close closes the file, and returns the first error there was in writing.
func (f *File) Close() error {
	err := f.file.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.fault, err)
}

func (f *File) write(line string) {
	_, err := io.WriteString(f.file, line)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault == nil && err != nil {
		f.fault = fmt.Errorf("writing %s: %w", f.file.Filename, err)
	}
}
