// Command rawserver is a stdio server of both eras that costs next to nothing:
// it answers each request with a text made of its params, and never decodes one.
//
// Its tools: echo; pid; big, a text of "n" bytes; log, "n" lines on stderr.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

const (
	bufferSize = 64 << 10
	logLine    = "rawserver: a line that says nothing, in as many words as a line of a log usually has, and a few more\n"
)

func main() {
	if err := serve(os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "rawserver:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out, log io.Writer) error {
	lines := bufio.NewReaderSize(in, bufferSize)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := answer(line, log)
		if err != nil {
			return err
		}
		if answer == nil {
			continue
		}
		if _, err := out.Write(answer); err != nil {
			return err
		}
	}
}

// answer returns the line that answers one, nil for a notification.
func answer(line []byte, log io.Writer) ([]byte, error) {
	id := value(line, "id")
	if id == nil {
		return nil, nil
	}
	var result []byte
	switch string(value(line, "method")) {
	case `"initialize"`:
		result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"0"}}`)
	case `"server/discover"`:
		result = []byte(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete","ttlMs":0,"cacheScope":"private",` +
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"raw","version":"0"}}}`)
	case `"tools/list"`:
		result = []byte(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"pid","inputSchema":{"type":"object"}},` +
			`{"name":"big","inputSchema":{"type":"object"}},{"name":"log","inputSchema":{"type":"object"}}],` +
			`"resultType":"complete","ttlMs":0,"cacheScope":"private"}`)
	case `"tools/call"`:
		text, err := call(line, log)
		if err != nil {
			return nil, err
		}
		result = append(append([]byte(`{"content":[{"type":"text","text":"`), text...), `"}],"resultType":"complete"}`...)
	default:
		result = []byte(`{}`)
	}
	reply := make([]byte, 0, len(result)+len(id)+bufferSize>>10)
	reply = append(append(reply, `{"jsonrpc":"2.0","id":`...), id...)
	reply = append(append(reply, `,"result":`...), result...)
	return append(reply, '}', '\n'), nil
}

func call(line []byte, log io.Writer) ([]byte, error) {
	n, _ := strconv.Atoi(string(value(line, "n"))) // 0 where there is none
	switch string(value(line, "name")) {
	case `"pid"`:
		return strconv.AppendInt(nil, int64(os.Getpid()), 10), nil
	case `"big"`:
		return bytes.Repeat([]byte("x"), n), nil
	case `"log"`:
		for range n {
			if _, err := io.WriteString(log, logLine); err != nil {
				return nil, err
			}
		}
		return []byte("written"), nil
	}
	return bytes.Trim(value(line, "text"), `"`), nil
}

// value returns the text of the first member of that name that is a number or a
// string without escapes, as the measurements send them; nil if there is none.
func value(line []byte, name string) []byte {
	_, after, found := bytes.Cut(line, []byte(`"`+name+`":`))
	if !found {
		return nil
	}
	if end := bytes.IndexAny(after, ",}"); end >= 0 {
		return after[:end]
	}
	return nil
}
