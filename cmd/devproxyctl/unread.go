package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// errUnread ends what goes on for a reader who has gone.
var errUnread = errors.New("nobody reads the output")

// whileRead does something that goes on and may print nothing for long, until it
// ends or whoever reads out has gone. That is found out by a look now and then, and
// ends the program as it ends one that prints.
func whileRead(ctx context.Context, out io.Writer, do func(context.Context) error) error {
	file, ok := out.(*os.File)
	if !ok {
		return do(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel(nil)
	looking.Go(func() {
		ticker := time.NewTicker(lookInterval)
		defer ticker.Stop()
		for !unread(file) {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(errUnread)
	})
	err := do(ctx)
	if errors.Is(context.Cause(ctx), errUnread) {
		// Nobody gets it. On stdout it is what has the system end the program.
		_, err = file.WriteString("\n")
	}
	return err
}
