package logs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by the first write and never ended: one for each file, of
		// which a daemon has one.
		goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func texts(entries []Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Text)
	}
	return strings.Join(all, " ")
}

func TestTail(t *testing.T) {
	b := NewBuffer(Limits{Lines: 5})
	sources := []Source{Backend, Build, Daemon}
	began := time.Now()
	for i := range 8 {
		b.Append(Entry{Source: sources[i%3], Text: fmt.Sprint(i), Time: began.Add(time.Duration(i) * time.Second), Generation: uint64(i)})
	}
	odd := func(e Entry) bool { return (e.Text[0]-'0')%2 == 1 }
	tests := []struct {
		n      int
		filter Filter
		want   string
	}{
		{0, Filter{}, "3 4 5 6 7"},
		{2, Filter{}, "6 7"},
		{99, Filter{}, "3 4 5 6 7"},
		{0, Filter{Sources: []Source{Backend}}, "3 6"},
		{1, Filter{Sources: []Source{Backend, Daemon}}, "6"},
		{3, Filter{Sources: []Source{Build, Daemon}}, "4 5 7"},
		{3, Filter{Sources: []Source{"nobody"}}, ""},
		{0, Filter{Generation: 4}, "4"},
		{0, Filter{Since: began.Add(6 * time.Second)}, "6 7"},
		{0, Filter{Match: odd}, "3 5 7"},
		{2, Filter{Match: odd}, "5 7"},
		{9, Filter{Match: odd, Since: began.Add(4 * time.Second)}, "5 7"},
		{1, Filter{Match: odd, Sources: []Source{Backend}}, "3"},
		{1, Filter{Match: func(Entry) bool { return false }}, ""},
	}
	for _, test := range tests {
		if got := texts(b.Tail(test.n, test.filter)); got != test.want {
			t.Errorf("tail %d of %+v: %q, want %q", test.n, test.filter, got, test.want)
		}
	}
	first := b.Tail(0, Filter{})[0]
	if first.Sequence != 4 || first.Time.IsZero() {
		t.Errorf("first entry %+v", first)
	}
}

func TestByteLimit(t *testing.T) {
	b := NewBuffer(Limits{Bytes: 100})
	for i := range 50 {
		b.Append(Entry{Text: strings.Repeat("x", i)})
		size := 0
		for _, e := range b.Tail(0, Filter{}) {
			size += len(e.Text)
		}
		if size > 100 {
			t.Fatalf("%d bytes are kept", size)
		}
	}
	if kept := b.Tail(0, Filter{}); len(kept) != 2 || kept[1].Sequence != 50 {
		t.Errorf("%d entries are kept", len(kept))
	}
	if len(b.entries) > 10 {
		t.Errorf("a slice of %d for two entries", len(b.entries))
	}
}

func TestClean(t *testing.T) {
	long := strings.Repeat("ä", maxText)
	tests := []struct{ in, want string }{
		{"plain", "plain"},
		{"line end\r\n", "line end"},
		{"", ""},
		{"bad \xff byte", "bad \uFFFD byte"},
		{long, strings.Repeat("ä", maxText/2) + "… [cut, 65536 bytes in all]"},
		{"x" + long, "x" + strings.Repeat("ä", maxText/2-1) + "… [cut, 65537 bytes in all]"},
	}
	for _, test := range tests {
		if got := clean(test.in); got != test.want || !utf8.ValidString(got) {
			t.Errorf("clean(%.20q) = %.20q (%d bytes), want %d bytes", test.in, got, len(got), len(test.want))
		}
	}
}

var errEnough = errors.New("enough")

func TestFollow(t *testing.T) {
	tests := []struct {
		name   string
		tail   int
		filter Filter
		want   string
	}{
		{"everything", 0, Filter{}, "b0 d1 b2 d3 b4 d5"},
		{"last one", 1, Filter{}, "d3 b4 d5"},
		{"last one of a source", 1, Filter{Sources: []Source{Backend}}, "b2 b4"},
		{"of a source that is silent", 5, Filter{Sources: []Source{Build}}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBuffer(Limits{})
				add := func(from, to int) {
					for i := from; i < to; i++ {
						b.Append(Entry{Source: []Source{Backend, Daemon}[i%2], Text: []string{"b", "d"}[i%2] + fmt.Sprint(i)})
					}
				}
				add(0, 4)
				ctx, cancel := context.WithCancelCause(t.Context())
				var got []Entry
				ended := make(chan error)
				go func() {
					ended <- b.Follow(ctx, test.tail, test.filter, func(e Entry) error {
						got = append(got, e)
						return nil
					})
				}()
				synctest.Wait()
				add(4, 6)
				synctest.Wait()
				cancel(errEnough)
				if err := <-ended; !errors.Is(err, errEnough) {
					t.Errorf("ended with %v", err)
				}
				if texts(got) != test.want {
					t.Errorf("got %q, want %q", texts(got), test.want)
				}
			})
		})
	}
}

func TestFollowIsGapFree(t *testing.T) {
	b := NewBuffer(Limits{Lines: 100_000})
	const writers, each = 4, 2000
	var writing, following sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for i := range each {
				b.Append(Entry{Text: fmt.Sprint(i)})
			}
		})
	}
	for range 3 {
		following.Go(func() {
			expected := uint64(0)
			err := b.Follow(t.Context(), 10, Filter{}, func(e Entry) error {
				if expected != 0 && e.Sequence != expected {
					t.Errorf("entry %d follows %d", e.Sequence, expected-1)
				}
				expected = e.Sequence + 1
				if e.Sequence == writers*each {
					return errEnough
				}
				return nil
			})
			if !errors.Is(err, errEnough) {
				t.Errorf("ended with %v", err)
			}
		})
	}
	writing.Wait()
	following.Wait()
}

func TestSlowFollowerLosesLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBuffer(Limits{Lines: 3})
		b.Append(Entry{Text: "first"})
		stuck, ended := make(chan struct{}), make(chan error)
		var got []uint64
		go func() {
			ended <- b.Follow(t.Context(), 0, Filter{}, func(e Entry) error {
				got = append(got, e.Sequence)
				if e.Sequence == 1 {
					<-stuck
				}
				if e.Sequence == 10 {
					return errEnough
				}
				return nil
			})
		}()
		synctest.Wait()
		for range 9 {
			b.Append(Entry{}) // blocked by nobody
		}
		close(stuck)
		<-ended
		if diff := cmp.Diff([]uint64{1, 8, 9, 10}, got); diff != "" {
			t.Errorf("sequences (-want +got):\n%s", diff)
		}
	})
}

func TestHandlers(t *testing.T) {
	b := NewBuffer(Limits{})
	path := filepath.Join(t.TempDir(), "daemon.log")
	file := NewFile(path)
	masker := NewMasker(map[string]string{"API_TOKEN": "hunter22"})
	log := slog.New(slog.NewMultiHandler(b.Handler(), file.Handler(masker.Mask)))

	log.With("generation", 3).WithGroup("exit").Warn("the backend has crashed", "code", 1, "said", "a \"b\"\nhunter22")
	log.Debug("not of interest")
	log.Info("done", slog.Group("msg", "time", 1), "level", 2)
	file.Append(Entry{Time: time.Unix(0, 0).UTC(), Source: Backend, Stream: "stderr", Generation: 2, Text: "listening\n"})
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	got := b.Tail(0, Filter{})
	if len(got) != 2 {
		t.Fatalf("entries %+v", got)
	}
	want := Entry{
		Sequence: 1, Time: got[0].Time, Source: Daemon, Stream: "WARN",
		Text: `the backend has crashed generation=3 exit.code=1 exit.said="a \"b\"\nhunter22"`,
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if got[1].Text != "done msg.time=1" {
		t.Errorf("second entry %q", got[1].Text)
	}

	content, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	if err != nil || len(lines) != 3 {
		t.Fatalf("file %q, %v", lines, err)
	}
	wantLine := " daemon WARN the backend has crashed generation=3 exit.code=1 exit.said=\"a \\\"b\\\"\\n***\""
	if !strings.HasSuffix(lines[0], wantLine) {
		t.Errorf("line %q, want one that ends in %q", lines[0], wantLine)
	}
	if lines[2] != "1970-01-01T00:00:00.000Z backend#2 stderr listening" {
		t.Errorf("line %q", lines[2])
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("file %v, %v", info, err)
	}
}

func TestHandlersMayBeSharedByGoroutines(t *testing.T) {
	b := NewBuffer(Limits{})
	log := slog.New(b.Handler())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			log := log.With("n", i)
			for range 100 {
				log.Info("tick")
			}
		})
	}
	all.Wait()
	for _, e := range b.Tail(0, Filter{}) {
		if len(e.Text) != len("tick n=1") {
			t.Fatalf("mixed up: %q", e.Text)
		}
	}
}

func TestFileRotates(t *testing.T) {
	dir := t.TempDir()
	file := NewFile(filepath.Join(dir, "daemon.log"))
	line := Entry{Source: Backend, Text: strings.Repeat("x", 100<<10)}
	for range (fileBackups + 3) * fileMegabytes << 20 / maxText {
		file.Append(line)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	// What is too old is removed beside what is written.
	var files []os.DirEntry
	for deadline := time.Now().Add(10 * time.Second); len(files) != fileBackups+1; time.Sleep(time.Millisecond) {
		var err error
		if files, err = os.ReadDir(dir); err != nil || time.Now().After(deadline) {
			t.Fatalf("%d files, %v", len(files), err)
		}
	}
	for _, entry := range files {
		if info, err := entry.Info(); err != nil || info.Size() > fileMegabytes<<20 {
			t.Errorf("%s: %v, %v", entry.Name(), info, err)
		}
	}
}

func TestFileFault(t *testing.T) {
	obstacle := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := NewFile(filepath.Join(obstacle, "daemon.log"))
	file.Append(Entry{Text: "x"})
	if err := file.Close(); err == nil || !strings.Contains(err.Error(), "writing "+obstacle) {
		t.Errorf("error %v", err)
	}
}

func TestSecretName(t *testing.T) {
	secret := []string{
		"TOKEN", "GITHUB_TOKEN", "API_KEY", "apiKey", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID",
		"DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "client-secret", "--auth-token", "AUTHORIZATION", "GOOGLE_CREDENTIALS",
		"NPM_AUTH", "SESSION_COOKIE", "PRIVATE_KEY", "SSH_PASSPHRASE", "GH_PAT", "ApiSecret", "DB_PASS",
		"SERVICE_JWT", "BEARER", "MAIL_OTP",
	}
	plain := []string{
		"", "PATH", "HOME", "PWD", "OLDPWD", "AUTHOR", "GIT_AUTHOR_NAME", "KEYBOARD", "SSH_AUTH_SOCK", "TOKEN_FILE",
		"TOKEN_LIMIT", "KEY_PATH", "AUTH_URL", "AUTH_MODE", "NODE_ENV", "LOG_LEVEL", "PATHEXT", "COMPASS", "XAUTHORITY",
		"LANG", "TOKENIZER",
	}
	for _, name := range secret {
		if !secretName(name) {
			t.Errorf("%s does not count as secret", name)
		}
	}
	for _, name := range plain {
		if secretName(name) {
			t.Errorf("%s counts as secret", name)
		}
	}
}

func TestMask(t *testing.T) {
	m := NewMasker(
		map[string]string{"API_KEY": "k3y/with+signs", "LOG_LEVEL": "debug", "USE_AUTH": "true", "MAX_TOKENS": "4096"},
		map[string]string{"A_TOKEN": "hunter2", "B_TOKEN": "hunter2-long", "SHORT_KEY": "abc", "EMPTY_KEY": ""},
		map[string]string{"SIGNING_KEY": "-----BEGIN KEY-----\nMIIEabc\nMIIEdef\n-----END KEY-----\n", "Q_SECRET": `quo"ted`},
		map[string]string{"HTML_SECRET": `<a&"b>`, "TAB_SECRET": "tab\tbed\x01", "BASE_SECRET": "user:päss", "BASE2_SECRET": "~~~???~~~"},
	)
	tests := []struct{ in, want string }{
		{"nothing to hide, debug true 4096 abc", "nothing to hide, debug true 4096 abc"},
		{"the key is k3y/with+signs.", "the key is ***."},
		{"GET /?k=k3y%2Fwith%2Bsigns", "GET /?k=***"},
		{"hunter2 and hunter2-long", "*** and ***"},
		{"MIIEdef", "***"},
		{"-----BEGIN KEY-----\nMIIEabc\nMIIEdef\n-----END KEY-----", "***"},
		{`"-----BEGIN KEY-----\nMIIEabc\nMIIEdef\n-----END KEY-----"`, `"***"`},
		{`<a&"b> "\u003ca\u0026\"b\u003e" "<a&\"b>"`, `*** "***" "***"`},
		{`"tab\tbed\x01" "tab\tbed\u0001"`, `"***" "***"`},
		{"Proxy-Auth dXNlcjpww6Rzcw== and fn5+Pz8/fn5+ or fn5-Pz8_fn5-", "Proxy-Auth ***== and *** or ***"},
		{`{"value":"quo\"ted"}`, `{"value":"***"}`},

		{"Authorization: Bearer abcdefghijkl", "Authorization: Bearer ***"},
		{`"authorization":"Basic dXNlcjpw"`, `"authorization":"Basic ***"`},
		{"uses bearer 0123456789abc", "uses bearer ***"},
		{"key sk-abcdefghijklmnop1234 used", "key *** used"},
		{"ghp_abcdefghijklmnopqrst12345", "***"},
		{"jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2lnbmF0dXJl!", "jwt ***!"},
		{"postgres://app:s3cret@db/x", "postgres://app:***@db/x"},

		{"server --api-key=abc123 --port=80", "server --api-key=*** --port=80"},
		{"server --api-key abc123 --port 80", "server --api-key *** --port 80"},
		{"server --token --verbose", "server --token --verbose"},
		{"docker run -e API_KEY=abc123 --env=DB_PASSWORD=abc123 -eMY_TOKEN=abc123 --env LEVEL=abc123 x",
			"docker run -e API_KEY=*** --env=DB_PASSWORD=*** -eMY_TOKEN=*** --env LEVEL=abc123 x"},
		{`docker run --env="DB_PASSWORD=abc123" --label=a=b:c x`, `docker run --env="DB_PASSWORD=***" --label=a=b:c x`},
		{`DB_PASSWORD='a b c' x`, `DB_PASSWORD='***' x`},
		{`{"apiKey": "ab\"c\\", "x": "y"} PASSWORD='a\'b c'`, `{"apiKey": "***", "x": "y"} PASSWORD='***'`},
		{`{"apiKey": "abc123", "key": "name"}`, `{"apiKey": "***", "key": "name"}`},
		{"client_secret=abcd&x=1", "client_secret=***&x=1"},
		{"password: pass1234, retrying", "password: ***, retrying"},
		{"max_tokens: 4096, token: 12, key: value, auth: none", "max_tokens: 4096, token: 12, key: value, auth: none"},
		{"unexpected token: }", "unexpected token: }"},
		{`token=""`, `token=""`},
		{"", ""},
	}
	for _, test := range tests {
		got := m.Mask(test.in)
		if got != test.want {
			t.Errorf("Mask(%q) = %q, want %q", test.in, got, test.want)
		}
		if again := m.Mask(got); again != got {
			t.Errorf("masking %q again gives %q", got, again)
		}
	}
	var none *Masker
	if got := none.Mask("hunter2 --api-key=abc123"); got != "hunter2 --api-key=***" {
		t.Errorf("the nil masker gives %q", got)
	}
}

func TestMaskEnvAndArgs(t *testing.T) {
	m := NewMasker(map[string]string{"A_TOKEN": "hunter2"})
	env := map[string]string{"A_TOKEN": "hunter2", "PIN_SECRET": "1", "NO_KEY": "", "URL": "http://x/?t=hunter2", "LEVEL": "debug"}
	want := map[string]string{"A_TOKEN": "***", "PIN_SECRET": "***", "NO_KEY": "", "URL": "http://x/?t=***", "LEVEL": "debug"}
	if diff := cmp.Diff(want, m.MaskEnv(env)); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	if env["A_TOKEN"] != "hunter2" {
		t.Error("the original was changed")
	}

	args := []string{"node", "x.js", "--api-key", "v", "--password=v", "-H", "Authorization: Bearer abcdefghi", "--token", "--v", "TOKEN=a b", "hunter2"}
	wantArgs := []string{"node", "x.js", "--api-key", "***", "--password=***", "-H", "Authorization: Bearer ***", "--token", "--v", "TOKEN=***", "***"}
	if diff := cmp.Diff(wantArgs, m.MaskArgs(args)); diff != "" {
		t.Errorf("args (-want +got):\n%s", diff)
	}
	args = []string{"docker", "run", "-e", "API_KEY=x", "--env", "TOKEN=a b", "--env=DB_PASSWORD=x y", "-eMY_SECRET=x", "-e=A_KEY=x", "-e", "API_KEY", "--env=LEVEL=debug", "--label=a=b=c", "image"}
	wantArgs = []string{"docker", "run", "-e", "API_KEY=***", "--env", "TOKEN=***", "--env=DB_PASSWORD=***", "-eMY_SECRET=***", "-e=A_KEY=***", "-e", "API_KEY", "--env=LEVEL=debug", "--label=a=b=c", "image"}
	if diff := cmp.Diff(wantArgs, m.MaskArgs(args)); diff != "" {
		t.Errorf("args of docker run (-want +got):\n%s", diff)
	}
	if m.MaskEnv(nil) != nil || m.MaskArgs(nil) != nil {
		t.Error("something came of nothing")
	}
}

func BenchmarkMask(b *testing.B) {
	m := NewMasker(map[string]string{"A_TOKEN": "hunter2hunter2", "B_KEY": "abcdefghijkl"})
	line := `2026-11-30T12:00:00Z info request method=tools/call id=17 duration=12ms path="/a/b/c" status=200`
	for b.Loop() {
		m.Mask(line)
	}
}
