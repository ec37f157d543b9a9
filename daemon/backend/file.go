package backend

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxStateFile bounds what is read of a file that an earlier daemon wrote, which
// is far above what it writes.
const maxStateFile = 64 << 20

func readFile(path string) (content []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err = io.ReadAll(io.LimitReader(file, maxStateFile+1))
	if err == nil && len(content) > maxStateFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxStateFile)
	}
	return content, err
}

// replaceFile writes a file that only its owner can read, so that at any moment,
// and after a power cut, it holds either the old content or the new.
func replaceFile(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	// CreateTemp makes the file with mode 0600.
	file, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if _, err := file.Write(content); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	syncDir(dir)
	return nil
}

// syncDir makes a rename last. Not every system can sync a folder; there the
// file is as safe as the system makes it.
func syncDir(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	_ = d.Sync()
	_ = d.Close()
}
