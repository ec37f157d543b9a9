//go:build !linux && !darwin

package watch

import "io/fs"

// metadataOf is what the system says of a file: on Windows without an identity,
// which would take opening it.
func metadataOf(info fs.FileInfo) metadata {
	return metadata{size: info.Size(), modified: info.ModTime().UnixNano()}
}
