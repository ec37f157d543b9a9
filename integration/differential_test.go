//go:build unix

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// difference is something that a client may see otherwise behind devproxy than
// on a direct connection, and why.
type difference struct {
	// pairs lists the eras of client and backend, as in "LM": a legacy client of
	// a modern backend.
	pairs string
	// server restricts it to servers whose names begin so, step to some steps.
	server, step string
	// kind is added, removed, changed or moved; member a pattern for the path.
	kind, member string
	// reason ends with the row of ERAS, or the section of DESIGN, that asks for it.
	reason string
}

// differences is all there may be: the rest is the same to the byte.
var differences = []difference{
	{"LL MM LM ML", "", "", "changed", `\.id`, "requests of the server have ids of ours (A.1.4)"},
	{"LL MM LM ML", "", "slow", "changed", `\.params\.progressToken`, "the token is the client's, to the byte; SDKs write it in their own way (C.4)"},
	{"LL MM LM ML", "raw", "slow", "changed", `\.result\.structuredContent\.params\._meta\.progressToken`, "the server gets a token of ours (C.4)"},

	// Handshakes.
	{"LL MM LM ML", "raw", "initialize discover", "removed", `\.result\.capabilities\.(tools|prompts|resources)`, "these were empty"},
	{"LL MM LM ML", "raw", "initialize discover", "added", `\.result\.capabilities\.(tools|prompts|resources)\.listChanged`, "restarts change lists (DESIGN 10)"},
	{"MM ML", "", "discover", "added", `\.result\.supportedVersions\[\d\]`, "both eras are offered (A.4)"},
	{"ML", "go", "discover", "changed", `\.result\.cacheScope`, "discover is answered from initialize (C.1)"},
	{"LM", "go", "initialize", "moved", `.*`, "initialize is answered from discover (C.1)"},

	// Methods that one era does not have.
	{"LL LM", "go", "discover", "changed", `\.error\.message`, "answered locally with -32601 (C.1)"},
	{"MM ML", "go", "ping", "changed", `\.error\.message`, "answered locally with -32601 (C.1)"},
	{"LL LM", "raw", "discover", "removed", `\.result\..*`, "the raw server answers every method in both eras; -32601 is right (C.1)"},
	{"LL LM", "raw", "discover", "added", `\.error\..*`, "the raw server answers every method in both eras; -32601 is right (C.1)"},
	{"MM ML", "raw", "ping", "removed", `\.result`, "the raw server answers every method in both eras; -32601 is right (C.1)"},
	{"MM ML", "raw", "ping", "added", `\.error\..*`, "the raw server answers every method in both eras; -32601 is right (C.1)"},
	{"LL LM", "raw", "unsubscribe", "removed", `\.error\..*`, "an unsubscribe is answered locally (DESIGN 10)"},
	{"LL LM", "raw", "unsubscribe", "added", `\.result`, "an unsubscribe is answered locally (DESIGN 10)"},

	{"LM ML", "go", "tasks", "changed", `\.error\.message`, "tasks are hidden across eras: -32601 (C.9)"},

	// A legacy client of a modern server.
	{"LM", "", "", "removed", `\.result\.(resultType|ttlMs|cacheScope)`, "stripped (A.6)"},
	{"LM", "raw", "", "added", `\.result\.(structuredContent\.)?params\._meta\.io\.modelcontextprotocol/.*`, "the server gets the envelope of its era (C.4)"},
	{"LM", "ts2", "", "removed", `\.params\._meta\.progressToken`, "the question is made from input_required, which has no token (C.8)"},
	{"LM", "go", "touch", "removed", `\.params`, "empty params go with the subscription id (C.2)"},
	{"LM", "", "", "added", `notifications/\w+/list_changed \d`, "list_changed for the gap in which the lists are listened to anew (DESIGN 10)"},

	// A modern client of a legacy server.
	{"ML", "", "", "added", `\.result\._meta\.io\.modelcontextprotocol/serverInfo\..*`, "stamped (A.5)"},
	{"ML", "raw", "", "removed", `\.result\.(structuredContent\.)?params\._meta\.io\.modelcontextprotocol/.*`, "the server gets no envelope of the other era (C.4)"},
	{"ML", "", "", "removed", `\.result\.inputRequests\.\w+\..*`, "the server's requests have keys of ours (C.7)"},
	{"ML", "", "", "added", `\.result\.inputRequests\.i\d\..*`, "the server's requests have keys of ours (C.7)"},
	{"ML", "", "", "changed", `\.result\.requestState`, "the state is ours (C.7)"},
	{"ML", "", "", "added", `\.result\.requestState`, "the state is ours (C.7)"},
	{"ML", "", "", "removed", `\.result\._meta\.io\.modelcontextprotocol/serverInfo\..*`, "input_required is of our making (C.7)"},
	{"ML", "go", "", "removed", `\.result\.content`, "go-sdk adds content: null to input_required (B.3)"},

	// The server says something else over HTTP.
	{"LL", "go-http", "unknown method", "changed", `\.error\.(code|message)`, "400 with plain text, over HTTP only (B.6, C.10)"},
	{"LL", "go-http", "unknown method", "added", `\.error\.data\..*`, "400 with plain text, over HTTP only (B.6, C.10)"},
	{"LL", "go-http", "error with data", "changed", `\.error\.(code|message)`, "400 with plain text, over HTTP only (B.6, C.10)"},
	{"LL", "go-http", "error with data", "added", `\.error\.data\..*`, "400 with plain text, over HTTP only (B.6, C.10)"},
	{"LL", "go-http", "tasks", "changed", `\.error\.(code|message)`, "400 with plain text, over HTTP only (B.6, C.10)"},
	{"LL", "go-http", "tasks", "added", `\.error\.data\..*`, "400 with plain text, over HTTP only (B.6, C.10)"},
	{"MM", "go-http-stateless", "", "changed", `\.error\.message`, "another message over HTTP"},
	{"MM", "go-http-stateless", "mirror", "removed", `\.result\..*`, "go-sdk's HTTP server cannot read params with 1e400 in them"},
	{"MM", "go-http-stateless", "mirror", "added", `\.error\..*`, "go-sdk's HTTP server cannot read params with 1e400 in them"},
}

// line is something that the client of a script sends. {M} in it stands for the
// members of a modern request's _meta.
type line struct {
	name string
	text string
	// until names notifications to wait for beside the response.
	until []string
	// silent: the request is cancelled and has no response.
	silent bool
}

const (
	clientCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}`
	claim              = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"0"},` +
		`"io.modelcontextprotocol/clientCapabilities":` + clientCapabilities
)

// shared is what clients of both eras ask; {M} is empty in the legacy one.
var shared = []line{
	{name: "tools/list", text: `{"method":"tools/list","params":{"_meta":{{M}}}}`},
	{name: "resources/list", text: `{"method":"resources/list","params":{"_meta":{{M}}}}`},
	{name: "resources/templates/list", text: `{"method":"resources/templates/list","params":{"_meta":{{M}}}}`},
	{name: "prompts/list", text: `{"method":"prompts/list","params":{"_meta":{{M}}}}`},
	{name: "read", text: `{"method":"resources/read","params":{"uri":"test://a","_meta":{{M}}}}`},
	{name: "read of a template", text: `{"method":"resources/read","params":{"uri":"test://t/\u0037","_meta":{{M}}}}`},
	{name: "read of nothing", text: `{"method":"resources/read","params":{"uri":"test://nope","_meta":{{M}}}}`},
	{name: "prompt", text: `{"method":"prompts/get","params":{"name":"p","arguments":{"lang":"\u00e9\/"},"_meta":{{M}}}}`},
	{name: "prompt without its argument", text: `{"method":"prompts/get","params":{"name":"p","_meta":{{M}}}}`},
	{name: "completion", text: `{"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"lang","value":"g"},"_meta":{{M}}}}`},
	{name: "echo", text: `{"method":"tools/call","params":{"name":"echo","arguments":{"text":"\u2028 <b> & \ud83d\ude00 \/"},"_meta":{{M}}}}`},
	{name: "mirror", text: `{"method":"tools/call","params":{"vendor":[1.0],"name":"mirror","arguments":{"z":9007199254740993,"one":1.0,"huge":1e400,"a":"\u003c\/","n":null},"_meta":{{M}}}}`},
	{name: "numbers", text: `{"method":"tools/call","params":{"name":"numbers","arguments":{},"_meta":{{M}}}}`},
	{name: "structured", text: `{"method":"tools/call","params":{"name":"add","arguments":{"a":1.0,"b":2},"_meta":{{M}}}}`},
	{name: "failing tool", text: `{"method":"tools/call","params":{"name":"fail","arguments":{},"_meta":{{M}}}}`},
	{name: "unknown tool", text: `{"method":"tools/call","params":{"name":"no such","arguments":{},"_meta":{{M}}}}`},
	{name: "unknown method", text: `{"method":"vendor/echo","params":{"b":1.0,"a":9007199254740993,"_meta":{{M}}}}`},
	{name: "error with data", text: `{"method":"vendor/fail","params":{"_meta":{{M}}}}`},
	{name: "unknown notification", text: `{"method":"notifications/vendor","params":{"x":1.0}}`},
}

var legacyScript = slices.Concat(
	[]line{
		{name: "initialize", text: `{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + clientCapabilities + `,"clientInfo":{"name":"raw","version":"0"}}}`},
		{name: "initialized", text: `{"method":"notifications/initialized"}`},
	},
	shared,
	[]line{
		{name: "ping", text: `{"method":"ping"}`},
		{name: "discover", text: `{"method":"server/discover"}`},
		{name: "tasks", text: `{"method":"tasks/list"}`},
		{name: "level", text: `{"method":"logging/setLevel","params":{"level":"info"}}`},
		{name: "slow", text: `{"method":"tools/call","params":{"name":"slow","arguments":{"ms":300},"_meta":{"progressToken":"t\u00e9\/"}}}`},
		{name: "subscribe", text: `{"method":"resources/subscribe","params":{"uri":"test://a"}}`},
		{name: "touch", text: `{"method":"tools/call","params":{"name":"touch","arguments":{}}}`, until: []string{"notifications/tools/list_changed", "notifications/resources/updated"}},
		{name: "unsubscribe", text: `{"method":"resources/unsubscribe","params":{"uri":"test://a"}}`},
		{name: "elicitation", text: `{"method":"tools/call","params":{"name":"ask","arguments":{}}}`},
		{name: "sampling", text: `{"method":"tools/call","params":{"name":"sample","arguments":{}}}`},
		{name: "roots", text: `{"method":"tools/call","params":{"name":"roots","arguments":{}}}`},
	},
)

var modernScript = slices.Concat(
	[]line{{name: "discover", text: `{"method":"server/discover","params":{"_meta":{{M}}}}`}},
	shared,
	[]line{
		{name: "ping", text: `{"method":"ping","params":{"_meta":{{M}}}}`},
		{name: "tasks", text: `{"method":"tasks/list","params":{"_meta":{{M}}}}`},
		{name: "slow", text: `{"method":"tools/call","params":{"name":"slow","arguments":{"ms":300},"_meta":{"progressToken":"t\u00e9\/","io.modelcontextprotocol/logLevel":"info",{M}}}}`},
		{name: "listen", text: `{"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["test://a"]},"_meta":{{M}}}}`,
			until: []string{"notifications/subscriptions/acknowledged"}, silent: true},
		{name: "touch", text: `{"method":"tools/call","params":{"name":"touch","arguments":{},"_meta":{{M}}}}`, until: []string{"notifications/tools/list_changed", "notifications/resources/updated"}},
		{name: "elicitation", text: `{"method":"tools/call","params":{"name":"ask","arguments":{},"_meta":{{M}}}}`},
		{name: "sampling", text: `{"method":"tools/call","params":{"name":"sample","arguments":{},"_meta":{{M}}}}`},
		{name: "roots", text: `{"method":"tools/call","params":{"name":"roots","arguments":{},"_meta":{{M}}}}`},
	},
)

// twins are pairs of servers with the same code: the first one directly on
// stdio, the second one behind devproxy.
var twins = []struct {
	direct, proxied backend
	pairs           string
}{
	{rawBackend, rawBackend, "LL MM LM ML"},
	{backendOf("ts2-stdio"), backendOf("ts2-stdio"), "LL MM LM ML"},
	{backendOf("go-stdio"), backendOf("go-stdio"), "LL MM LM ML"},
	{backendOf("ts1-stdio"), backendOf("ts1-stdio"), "LL"},
	{backendOf("ts1-stdio"), backendOf("ts1-http"), "LL"},
	{backendOf("ts1-stdio"), backendOf("ts1-sse"), "LL"},
	{backendOf("ts2-stdio"), backendOf("ts2-http"), "MM"},
	{backendOf("go-stdio"), backendOf("go-http"), "LL"},
	{backendOf("go-stdio"), backendOf("go-http-stateless"), "MM"},
}

var rawBackend = backend{name: "raw", eras: "legacy+modern", transport: "stdio", command: goFixture("raw")}

func backendOf(name string) backend {
	return fixtureBackends[slices.IndexFunc(fixtureBackends, func(b backend) bool { return b.name == name })]
}

// The same script directly and through devproxy: the client reads the same
// bytes, member by member, but for what the table of differences allows.
func TestDifferential(t *testing.T) {
	used := map[int]bool{}
	chosen := 0 // by -run; without it all of them
	for _, twin := range twins {
		for pair := range strings.FieldsSeq(twin.pairs) {
			chosen--
			t.Run(twin.proxied.name+"/"+pair, func(t *testing.T) {
				chosen++
				client, era := string(pair[0]), map[byte]string{'L': "legacy", 'M': "modern"}[pair[1]]
				script := map[string][]line{"L": legacyScript, "M": modernScript}[client]
				if twin.direct.name == "raw" {
					// It answers at once and asks nothing.
					script = slices.DeleteFunc(slices.Clone(script), func(l line) bool { return l.until != nil })
				}

				folders := newFolders(t)
				direct := play(t, newRawClient(t, folders.clientEnv(), twin.direct.direct(t, folders)...), script)

				p := newProject(t)
				p.use(t, twin.proxied, fmt.Sprintf("era = %q\nstop_timeout = \"300ms\"", era))
				// Once for the handshake that the second one is answered from.
				play(t, p.raw(t), script[:3])
				proxied := play(t, p.raw(t), script)
				for _, found := range compare(direct, proxied) {
					i := slices.IndexFunc(differences, func(d difference) bool { return d.allows(pair, twin.proxied.name, found) })
					if i < 0 {
						t.Errorf("%s, %s: %s %s: directly %s, devproxy %s", found.step, found.message, found.kind, found.member, found.direct, found.proxied)
						continue
					}
					used[i] = true
				}
			})
		}
	}
	for i, d := range differences {
		// Whether that gap is seen during the script is a matter of moments.
		if !used[i] && chosen == 0 && !t.Failed() && !strings.Contains(d.member, "list_changed") {
			t.Errorf("there is no such difference any more: %+v", d)
		}
	}
}

func (d difference) allows(pair, server string, found finding) bool {
	return slices.Contains(strings.Fields(d.pairs), pair) && strings.HasPrefix(server, d.server) &&
		(d.step == "" || strings.Contains(d.step, found.step)) && d.kind == found.kind &&
		regexp.MustCompile("^(?:"+d.member+")$").MatchString(found.member)
}

// heard is what a client read during one step of a script.
type heard struct {
	step string
	// messages by what they are: "response", or a method, numbered.
	messages map[string]string
}

// play sends a script and returns what came back.
func play(t *testing.T, c *rawClient, script []line) []heard {
	t.Helper()
	var all []heard
	for i, l := range script {
		h := heard{l.name, map[string]string{}}
		text := strings.ReplaceAll(l.text, "{M}", claim)
		if script[0].name == "initialize" {
			text = strings.ReplaceAll(l.text, `"_meta":{{M}}`, `"_meta":{"traceparent":"00-0-0-00"}`)
		}
		id := ""
		if !strings.Contains(text, `"notifications/`) {
			// SDKs write other ids in their own way.
			id = fmt.Sprint(i)
			if i%2 == 0 {
				id = fmt.Sprintf(`"s-%d"`, i)
			}
			text = `{"jsonrpc":"2.0","id":` + id + "," + text[1:]
		} else {
			text = `{"jsonrpc":"2.0",` + text[1:]
		}
		c.send(t, "%s", text)
		waiting := slices.Clone(l.until)
		if id != "" && !l.silent {
			waiting = append(waiting, "response")
		}
		for len(waiting) > 0 {
			what, message := h.note(t, c.next(t), id)
			if what == "" {
				t.Fatalf("%s: unexpected %s", l.name, message)
			}
			if i := slices.Index(waiting, what); i >= 0 {
				waiting = slices.Delete(waiting, i, i+1)
			}
			if more := respond(t, c, text, message); more != "" {
				id = more
				waiting = append(waiting, "response")
			}
		}
		all = append(all, h)
	}
	return all
}

// note files a message of the server, and returns what it is.
func (h heard) note(t *testing.T, text, id string) (what, message string) {
	t.Helper()
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	what = m.Method
	if what == "" && string(m.ID) == id {
		what = "response"
	}
	for n := 1; ; n++ {
		key := fmt.Sprintf("%s %d", what, n)
		if _, taken := h.messages[key]; !taken {
			h.messages[key] = text
			return what, text
		}
	}
}

var answers = map[string]string{
	"elicitation/create":     `{"action":"accept","content":{"name":"B\u00f6b"}}`,
	"sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"h\u00e9\/"}}`,
	"roots/list":             `{"roots":[{"uri":"file:///fixture","name":"\u003c"}]}`,
}

// respond answers what the server asks: a request at once, and input_required
// by the request once more, whose id it returns.
func respond(t *testing.T, c *rawClient, request, text string) (retry string) {
	t.Helper()
	var m struct {
		ID     json.RawMessage
		Method string
		Result struct {
			ResultType    string
			InputRequests map[string]struct{ Method string }
			RequestState  json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	if m.Method != "" && m.ID != nil {
		c.send(t, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answers[m.Method])
	}
	if m.Result.ResultType != "input_required" {
		return ""
	}
	more := `"inputResponses":{`
	for key, asked := range m.Result.InputRequests {
		more += fmt.Sprintf("%q:%s", key, answers[asked.Method])
	}
	more += "}"
	if m.Result.RequestState != nil {
		more += `,"requestState":` + string(m.Result.RequestState)
	}
	again := strings.Replace(request, `"params":{`, `"params":{`+more+",", 1)
	again = regexp.MustCompile(`"id":[^,]*,`).ReplaceAllString(again, `"id":"again",`)
	c.send(t, "%s", again)
	return `"again"`
}

// finding is one member that is not the same.
type finding struct {
	step, message, kind, member string
	direct, proxied             string
}

// whole stands for a message that only one side has.
const whole = "message"

func compare(direct, proxied []heard) []finding {
	var all []finding
	for i, d := range direct {
		p := proxied[i]
		keys := map[string]bool{}
		for key := range d.messages {
			keys[key] = true
		}
		for key := range p.messages {
			keys[key] = true
		}
		for key := range keys {
			if d.messages[key] == p.messages[key] {
				continue
			}
			for _, f := range compareMessages(d.messages[key], p.messages[key]) {
				f.step, f.message = d.step, key
				if f.member == whole {
					f.member = key
				}
				all = append(all, f)
			}
		}
	}
	return all
}

// compareMessages compares two messages, "" for none.
func compareMessages(direct, proxied string) []finding {
	if direct == "" {
		return []finding{{kind: "added", member: whole, proxied: proxied}}
	}
	if proxied == "" {
		return []finding{{kind: "removed", member: whole, direct: direct}}
	}
	var found []finding
	d, p := members("", []byte(direct)), members("", []byte(proxied))
	at := func(list []member, path string) int {
		return slices.IndexFunc(list, func(m member) bool { return m.path == path })
	}
	last := -1
	for _, m := range d {
		// The envelope is of our making (A.1.2), and what only one era has is put
		// where it was not (A.5).
		ordered := !strings.HasPrefix(m.path, ".jsonrpc") && !strings.HasPrefix(m.path, ".id") && !stamp.MatchString(m.path)
		i := at(p, m.path)
		switch {
		case i < 0:
			found = append(found, finding{kind: "removed", member: m.path, direct: m.text})
			continue
		case p[i].text != m.text:
			found = append(found, finding{kind: "changed", member: m.path, direct: m.text, proxied: p[i].text})
		case ordered && i < last:
			found = append(found, finding{kind: "moved", member: m.path, direct: m.text, proxied: p[i].text})
		}
		if ordered {
			last = max(last, i)
		}
	}
	for _, m := range p {
		if at(d, m.path) < 0 {
			found = append(found, finding{kind: "added", member: m.path, proxied: m.text})
		}
	}
	return found
}

// stamp is what modern results have and legacy ones do not.
var stamp = regexp.MustCompile(`^\.(result|params)\.(resultType|ttlMs|cacheScope|_meta\..*)$`)

// member is a scalar or an empty object or array, as it is written.
type member struct{ path, text string }

// members lists the members of a JSON text in their order. The path has the
// keys as they are written.
func members(path string, raw []byte) []member {
	raw = bytes.TrimSpace(raw)
	decoder := json.NewDecoder(bytes.NewReader(raw))
	open, err := decoder.Token()
	if delim, ok := open.(json.Delim); err != nil || !ok || !decoder.More() {
		return []member{{path, string(raw)}}
	} else if delim == '[' {
		var all []member
		for i := 0; decoder.More(); i++ {
			var value json.RawMessage
			if decoder.Decode(&value) != nil {
				return []member{{path, string(raw)}}
			}
			if bytes.HasPrefix(value, []byte(`{"name":"dev_`)) {
				continue // the tools that devproxy adds
			}
			all = append(all, members(fmt.Sprintf("%s[%d]", path, i), value)...)
		}
		return all
	}
	var all []member
	for decoder.More() {
		before := decoder.InputOffset()
		_, err := decoder.Token()
		key := strings.Trim(string(raw[before:decoder.InputOffset()]), "{, \n\"")
		var value json.RawMessage
		if err != nil || decoder.Decode(&value) != nil {
			return []member{{path, string(raw)}}
		}
		all = append(all, members(path+"."+key, value)...)
	}
	return all
}
