//go:build unix

package port

import (
	"errors"
	"syscall"
)

// addressInUse reports whether a bind failed because somebody listens there.
func addressInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
