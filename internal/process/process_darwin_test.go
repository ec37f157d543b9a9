package process

import (
	"context"
	"errors"
	"os"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

// leftProcesses cannot look: environments are hidden here.
func leftProcesses() error { return nil }

func endOwnGroup(string) {
	id, err := identify(os.Getppid())
	must(err)
	_, err = EndOrphan(context.Background(), id, 0)
	must(errors.Join(err))
}

func endFirstThread() {}
