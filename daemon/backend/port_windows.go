package backend

import (
	"errors"

	"golang.org/x/sys/windows"
)

// addressInUse reports whether a bind failed because somebody listens there;
// access is denied where he bound the port for himself alone.
func addressInUse(err error) bool {
	return errors.Is(err, windows.WSAEADDRINUSE) || errors.Is(err, windows.WSAEACCES)
}
