package main

import "os"

// unread knows nothing of a pipe's reader; the next line that is printed does.
func unread(*os.File) bool { return false }
