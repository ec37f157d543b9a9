package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// LogOptions says which log entries are wanted.
type LogOptions struct {
	// Tail is how many of the last of those that the other options leave; 0 means
	// all that are kept.
	Tail uint32
	// Follow goes on with new ones until the context ends.
	Follow bool
	// Sources are names as SourceName returns them; none means all.
	Sources []string
	// ShowSecrets shows text that looks secret.
	ShowSecrets bool
	// Since is the time from which on entries are wanted; zero means all.
	Since time.Time
	// Generation is that of the backend whose entries are wanted; 0 means all.
	Generation uint64
	// Pattern is a regular expression of RE2 syntax that the text has to match, as
	// it is shown; empty means all.
	Pattern string
}

// filters reports whether the options need what daemons do not know from the
// beginning.
func (o LogOptions) filters() bool { return !o.Since.IsZero() || o.Generation != 0 || o.Pattern != "" }

// Logs passes log entries to entry, oldest first. With Follow it goes on until
// the context ends or somebody stops the daemon, which are no errors, or until
// entry fails or the connection breaks.
func (c *Client) Logs(ctx context.Context, o LogOptions, entry func(*LogEntry) error) error {
	if !o.filters() {
		return c.logs(ctx, o, entry)
	}
	if knows, err := c.filtersLogs(ctx); knows || err != nil {
		if err != nil {
			return fmt.Errorf("reading the logs: %w", readable(err))
		}
		return c.logs(ctx, o, entry)
	}
	return c.filterLogs(ctx, o, entry)
}

func (c *Client) logs(ctx context.Context, o LogOptions, entry func(*LogEntry) error) error {
	request := &devproxyv1.StreamLogsRequest{
		Tail: o.Tail, Follow: o.Follow, ShowSecrets: o.ShowSecrets, Generation: o.Generation, Pattern: o.Pattern,
	}
	if !o.Since.IsZero() {
		request.Since = timestamppb.New(o.Since)
	}
	for _, name := range o.Sources {
		request.Sources = append(request.Sources, sourceOf(name))
	}
	stream, err := c.Control().StreamLogs(ctx, request)
	return receiveAll(ctx, stream, err, "reading the logs", func(r *devproxyv1.StreamLogsResponse) error { return entry(r.GetEntry()) })
}

// filtersLogs reports whether the daemon knows more filters than that of sources.
// One that does not leaves out what it does not know, without a word, so it is
// asked for what it would have to refuse.
func (c *Client) filtersLogs(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := c.Control().StreamLogs(ctx, &devproxyv1.StreamLogsRequest{Tail: 1, Pattern: "("})
	if err == nil {
		_, err = stream.Recv()
	}
	switch {
	case status.Code(err) == codes.InvalidArgument:
		return true, nil
	case err == nil, errors.Is(err, io.EOF):
		return false, nil
	}
	return false, err
}

// filterLogs is Logs with a daemon that filters by source alone.
func (c *Client) filterLogs(ctx context.Context, o LogOptions, entry func(*LogEntry) error) error {
	pattern, err := regexp.Compile(o.Pattern)
	if err != nil {
		return fmt.Errorf("the pattern: %w", err)
	}
	wants := func(e *LogEntry) bool {
		return !e.GetTime().AsTime().Before(o.Since) && (o.Generation == 0 || e.GetGeneration() == o.Generation) && pattern.MatchString(e.GetText())
	}
	all := LogOptions{Sources: o.Sources, ShowSecrets: o.ShowSecrets}
	var kept []*LogEntry
	last := uint64(0)
	if err := c.logs(ctx, all, func(e *LogEntry) error {
		last = e.GetSequence()
		if wants(e) {
			kept = append(kept, e)
		}
		return nil
	}); err != nil {
		return err
	}
	if o.Tail > 0 && len(kept) > int(o.Tail) {
		kept = kept[len(kept)-int(o.Tail):]
	}
	for _, e := range kept {
		if err := entry(e); err != nil {
			return err
		}
	}
	if !o.Follow {
		return nil
	}
	all.Follow = true
	return c.logs(ctx, all, func(e *LogEntry) error {
		if e.GetSequence() <= last || !wants(e) {
			return nil
		}
		return entry(e)
	})
}

// SourceName is the source's name as people know it, such as "backend".
func SourceName(s devproxyv1.LogSource) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "LOG_SOURCE_"))
}

func sourceOf(name string) devproxyv1.LogSource {
	return devproxyv1.LogSource(devproxyv1.LogSource_value["LOG_SOURCE_"+strings.ToUpper(name)])
}

// LogSources are the names of the sources.
func LogSources() []string { return []string{"backend", "build", "daemon"} }

// IsLogSource reports whether name is that of a source.
func IsLogSource(name string) bool { return slices.Contains(LogSources(), name) }
