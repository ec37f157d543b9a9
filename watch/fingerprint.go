package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// metadata is what must change when a file does, and is cheap to ask for.
type metadata struct {
	size, modified, changed int64 // times in nanoseconds; changed is 0 where the system has none
	inode, device           uint64
}

// fileState is one file of a fingerprint.
type fileState struct {
	meta metadata
	// hash of the content.
	hash uint64
	// fresh says that the file was written so shortly before it was read that
	// a later write could have left the metadata as it is.
	fresh bool
	// real is where the file is to be read.
	real string
	// link is the target of a link that leads nowhere; its text is the content.
	link string
}

// fingerprint is the content of everything watched, by path. It is not changed
// once it is made.
type fingerprint map[string]fileState

const (
	// maxHashed bounds the work for one file. What is larger is data that
	// hardly belongs into build output.
	maxHashed = 64 << 20
	// maxHashers is how many files are read at once. Reading from the page
	// cache gains little beyond that, and the machine has other work in a build.
	maxHashers = 4
	// freshFor is longer than the step of any system's clock for files.
	freshFor = 100 * time.Millisecond
	// coarseFreshFor is for file systems that keep whole seconds, or two (FAT).
	coarseFreshFor = 2 * time.Second
)

// hasher reads contents.
type hasher struct {
	seed maphash.Seed
	read atomic.Int64 // how many files were read, for tests
}

// complete fills in the hashes of found, taking those of files whose metadata
// did not change from before. Files that have vanished meanwhile are left out.
// It stops early when ctx ends; the result is of no use then.
func (h *hasher) complete(ctx context.Context, found, before fingerprint) {
	var unread []string
	for path, state := range found {
		if known, ok := before[path]; ok && known.meta == state.meta && known.link == state.link && !known.fresh {
			state.hash = known.hash
			found[path] = state
			continue
		}
		unread = append(unread, path)
	}
	slices.Sort(unread) // neighbours on disk are neighbours in time

	states := make([]fileState, len(unread))
	gone := make([]bool, len(unread))
	var next atomic.Int64
	var hashers sync.WaitGroup
	for range min(maxHashers, runtime.GOMAXPROCS(0), len(unread)) {
		hashers.Go(func() {
			buffer := make([]byte, 128<<10)
			for i := next.Add(1) - 1; int(i) < len(unread) && ctx.Err() == nil; i = next.Add(1) - 1 {
				states[i], gone[i] = h.hash(found[unread[i]], buffer)
			}
		})
	}
	hashers.Wait()
	for i, path := range unread {
		if gone[i] {
			delete(found, path)
		} else {
			found[path] = states[i]
		}
	}
}

func (h *hasher) hash(state fileState, buffer []byte) (_ fileState, gone bool) {
	state.fresh = isFresh(state.meta, time.Now())
	if state.link != "" {
		state.hash = maphash.String(h.seed, state.link)
		return state, false
	}
	if state.meta.size > maxHashed {
		state.hash = h.hashMetadata(state.meta)
		return state, false
	}
	h.read.Add(1)
	file, err := openFile(state.real)
	if errors.Is(err, fs.ErrNotExist) {
		return state, true
	}
	if err != nil {
		state.hash = h.hashMetadata(state.meta) // unreadable; a change of it can still be seen
		return state, false
	}
	defer func() { _ = file.Close() }()
	var sum maphash.Hash
	sum.SetSeed(h.seed)
	// The limit is for a file that somebody keeps writing to. Hiding the file's
	// WriteTo makes the copy use the buffer.
	if _, err := io.CopyBuffer(&sum, io.LimitReader(file, maxHashed), buffer); err != nil {
		state.hash = h.hashMetadata(state.meta)
		return state, false
	}
	state.hash = sum.Sum64()
	return state, false
}

func (h *hasher) hashMetadata(meta metadata) uint64 {
	text := binary.LittleEndian.AppendUint64(nil, uint64(meta.size))
	return maphash.Bytes(h.seed, binary.LittleEndian.AppendUint64(text, uint64(meta.modified)))
}

func isFresh(meta metadata, now time.Time) bool {
	window := freshFor
	if meta.modified%int64(time.Second) == 0 {
		window = coarseFreshFor
	}
	return max(meta.modified, meta.changed) > now.Add(-window).UnixNano()
}

// difference lists the paths whose content is not the same, sorted.
func difference(a, b fingerprint) []string {
	var paths []string
	for path, state := range a {
		if other, ok := b[path]; !ok || other.hash != state.hash {
			paths = append(paths, path)
		}
	}
	for path := range b {
		if _, ok := a[path]; !ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// moved reports whether anything was written between two fingerprints, even if
// it made no difference.
func moved(a, b fingerprint) bool {
	if len(a) != len(b) {
		return true
	}
	for path, state := range a {
		if other, ok := b[path]; !ok || other.meta != state.meta {
			return true
		}
	}
	return false
}
