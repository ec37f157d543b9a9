//go:build !linux

package main

import (
	"errors"
	"io"
	"os"
)

func newPolledInput(*os.File) (io.Reader, error) { return nil, errors.ErrUnsupported }
