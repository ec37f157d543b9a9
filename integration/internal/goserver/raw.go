package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Numbers, escapes and an order of members that a decoder and encoder of JSON
// would not give back as they were.
const rawNumbers = `{"zebra":12345678901234567890,"one":1.0,"huge":1e400,"small":-0.000,` +
	`"alpha":"a\u2028 <b> & \u00e9 \/","twice":[1,1.00,10e-1],"null":null}`

// The answers of the raw server. Every one has members that the protocol does
// not know, in places where it says that they are to be ignored.
var rawAnswers = map[string]string{
	"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{},"vendor":{"x":1.0}},` +
		`"serverInfo":{"name":"raw-fixture","version":"0"}}`,
	"server/discover": `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{},"vendor":{"x":1.0}},` +
		`"resultType":"complete","ttlMs":0,"cacheScope":"private",` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"raw-fixture","version":"0"}}}`,
	"ping": `{}`,
	"resources/list": `{"resources":[{"uri":"raw://a","name":"a","size":12345678901234567890,"vendorResource":[1.0]}],` +
		`"nextCursor":"\u0063\/2","resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
	"resources/read": `{"contents":[{"vendorFirst":{"b":1,"a":1.0},"uri":"raw:\/\/a","text":"\ud83d\ude00 \u2028"}],` +
		`"vendorRead":null,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
	"prompts/get": `{"messages":[{"role":"user","content":{"type":"vendor/hologram","voxels":9007199254740993,"data":"\u003c"}}],` +
		`"resultType":"complete"}`,
	"completion/complete": `{"completion":{"values":["\u00e9","e"],"total":2.0,"vendor":1e400},"resultType":"complete"}`,
	"tools/list": `{"vendorList":1.0,"tools":[{"vendorTool":1e400,"name":"exotic",` +
		`"inputSchema":{"type":"object","maximum":1.0}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
}

// serveRaw answers one client on its standard streams, line by line, and
// copies each line that it reads to the file at wirePath.
//
// tools/call returns exotic numbers beside the params it was given; a method
// that begins with "vendor/" returns its params alone; "vendor/fail" an error
// with exotic data. A call with a progress token is preceded by a notification
// about it and one that nobody knows.
func serveRaw(in io.Reader, out io.Writer, wirePath string) error {
	wire := io.Discard
	if wirePath != "" {
		file, err := os.OpenFile(wirePath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		wire = file
	}
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := wire.Write(line); err != nil {
			return err
		}
		answer, err := rawAnswer(line)
		if err != nil {
			return err
		}
		if answer == "" {
			continue
		}
		// Line by line, as servers write.
		for _, text := range append(rawNotes(line), answer) {
			if _, err := io.WriteString(out, text+"\n"); err != nil {
				return err
			}
		}
	}
}

// rawNotes returns the lines that come before the answer to one.
func rawNotes(line []byte) []string {
	var message struct {
		Params struct {
			Meta struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		}
	}
	// What has other params has no token.
	if err := json.Unmarshal(line, &message); err != nil || message.Params.Meta.Token == nil {
		return nil
	}
	return []string{
		fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"vendor":%s,"progress":1.0,`+
			`"progressToken":%s,"total":1e400,"message":"\u003c\/"}}`, rawNumbers, message.Params.Meta.Token),
		fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/vendor","params":{"numbers":%s}}`, rawNumbers),
	}
}

// rawAnswer returns the line that answers one, or "" for a notification.
func rawAnswer(line []byte) (string, error) {
	var message struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	if err := json.Unmarshal(line, &message); err != nil {
		return "", err
	}
	if message.ID == nil {
		return "", nil
	}
	if message.Params == nil {
		message.Params = json.RawMessage("{}")
	}
	reply := func(result string) (string, error) {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, message.ID, result), nil
	}
	if result, known := rawAnswers[message.Method]; known {
		return reply(result)
	}
	switch {
	case message.Method == "tools/call":
		return reply(fmt.Sprintf(
			`{"vendorResult":1.0,"content":[{"vendorBlock":1e400,"type":"text","text":"\u003ctext\/\u003e"}],`+
				`"structuredContent":{"numbers":%s,"params":%s},"resultType":"complete"}`,
			rawNumbers, message.Params))
	case message.Method == "vendor/fail":
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-31999,"message":"a \u003c b","data":%s}}`,
			message.ID, rawNumbers), nil
	case bytes.HasPrefix([]byte(message.Method), []byte("vendor/")):
		return reply(fmt.Sprintf(`{"params":%s,"resultType":"complete"}`, message.Params))
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, message.ID), nil
}
