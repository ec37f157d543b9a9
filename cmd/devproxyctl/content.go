package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
)

// block is one of a result, or what a resource holds.
type block struct {
	Type     string
	Text     *string
	Data     *string // of an image or a sound, base64
	Blob     *string // of a resource, base64
	MIMEType string
	URI      string
	Name     string
	Resource *block // embedded
}

// contents reads blocks. A single one may stand without a list, as in prompts.
func contents(raw []byte) []block {
	var all []block
	if json.Unmarshal(raw, &all) == nil {
		return all
	}
	var one block
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil
	}
	return []block{one}
}

// body is the text, or the bytes with a description; what is neither is only
// described.
func (c block) body() (text *string, data []byte, description string) {
	if c.Resource != nil {
		return c.Resource.body()
	}
	kind := c.Type
	if kind == "" || c.URI != "" {
		kind = strings.TrimSpace("resource " + c.URI)
	}
	if c.Type == "resource_link" {
		return nil, nil, strings.TrimSpace("link to " + c.URI + " " + c.Name)
	}
	if c.Text != nil {
		return c.Text, nil, kind
	}
	encoded := c.Data
	if encoded == nil {
		encoded = c.Blob
	}
	if encoded == nil {
		return nil, nil, kind
	}
	data, err := base64.StdEncoding.DecodeString(*encoded)
	if err != nil {
		return nil, nil, kind + ", which is no base64"
	}
	return nil, data, fmt.Sprintf("%s, %s, %s", kind, typeOrUnknown(c.mimeType()), size(len(data)))
}

func (c block) mimeType() string {
	if c.Resource != nil {
		return c.Resource.mimeType()
	}
	return c.MIMEType
}

func typeOrUnknown(mimeType string) string {
	if mimeType == "" {
		return "of unknown type"
	}
	return mimeType
}

// size is a number of bytes as a person reads it.
func size(n int) string {
	const kib = 1 << 10
	switch {
	case n == 1:
		return "1 byte"
	case n < kib:
		return fmt.Sprintf("%d bytes", n)
	case n < kib*kib:
		return fmt.Sprintf("%.1f KiB", float64(n)/kib)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(kib*kib))
}

// sink is where a command puts what it got: text to stdout, and what is no text
// into files if there is a place for them.
type sink struct {
	cmd *cobra.Command
	// path is --output: a folder, or the file for the one thing there is.
	path string
}

const outputHelp = "where to save what is no text: a folder for all of it, or a `FILE` for the only one; " +
	"a file takes the text where there is nothing else. What is there is replaced"

// put shows or saves contents.
func (s sink) put(all []block) error {
	isFolder, err := s.isFolder()
	if err != nil {
		return err
	}
	blobs := 0
	for _, c := range all {
		if _, data, _ := c.body(); data != nil {
			blobs++
		}
	}
	if s.path != "" && !isFolder && blobs > 1 {
		return cli.Usage(fmt.Errorf("there are %d things to save, and %s is a file; name a folder", blobs, s.path))
	}
	var texts []string
	for i, c := range all {
		text, data, description := c.body()
		switch {
		case text != nil:
			texts = append(texts, *text)
		case data != nil && s.path != "":
			err = s.save(s.file(i, c, isFolder), data, description)
		case data != nil:
			s.tell("[" + description + "; --output saves it]")
		default:
			s.tell("[" + description + "]")
		}
		if err != nil {
			return err
		}
	}
	if s.path != "" && !isFolder && blobs == 0 && len(texts) > 0 {
		text := strings.Join(texts, "\n")
		return s.save(s.path, []byte(text), "text, "+size(len(text)))
	}
	for _, text := range texts {
		if err := s.print(text); err != nil {
			return err
		}
	}
	return nil
}

// print writes text as it is, unless it is for a terminal, to which it could do
// something.
func (s sink) print(text string) error {
	out := s.cmd.OutOrStdout()
	if isTerminal(out) {
		text = cli.Printable(text)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := fmt.Fprint(out, text)
	return err
}

func (s sink) tell(text string) {
	_, _ = fmt.Fprintln(s.cmd.ErrOrStderr(), cli.PrintableLine(text))
}

func (s sink) isFolder() (bool, error) {
	if s.path == "" {
		return false, nil
	}
	if strings.HasSuffix(s.path, "/") || strings.HasSuffix(s.path, string(filepath.Separator)) {
		if err := os.MkdirAll(s.path, 0o755); err != nil {
			return false, fmt.Errorf("making the folder for the output: %w", err)
		}
		return true, nil
	}
	info, err := os.Stat(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

// file names the file of the i-th content. Nothing of what the server says gets
// into the name but a known type.
func (s sink) file(i int, c block, isFolder bool) string {
	if !isFolder {
		return s.path
	}
	kind := "resource"
	if c.Type == "image" || c.Type == "audio" {
		kind = c.Type
	}
	return filepath.Join(s.path, fmt.Sprintf("%s-%d%s", kind, i+1, extension(c.mimeType())))
}

func extension(mimeType string) string {
	mimeType, _, _ = strings.Cut(strings.ToLower(mimeType), ";")
	switch strings.TrimSpace(mimeType) {
	case "image/jpeg":
		return ".jpg"
	case "image/svg+xml":
		return ".svg"
	case "image/png", "image/gif", "image/webp", "image/bmp", "image/avif":
		return "." + strings.TrimPrefix(mimeType, "image/")
	case "audio/mpeg":
		return ".mp3"
	case "audio/wav", "audio/ogg", "audio/flac", "audio/aac":
		return "." + strings.TrimPrefix(mimeType, "audio/")
	case "application/pdf", "application/json", "application/zip":
		return "." + strings.TrimPrefix(mimeType, "application/")
	case "text/plain":
		return ".txt"
	case "text/html", "text/css", "text/csv":
		return "." + strings.TrimPrefix(mimeType, "text/")
	}
	return ".bin"
}

func (s sink) save(path string, data []byte, description string) error {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("saving %s: %w", description, err)
	}
	s.tell(fmt.Sprintf("saved %s (%s)", path, description))
	return nil
}
