//go:build unix

package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// complete asks devproxyctl as a completion script does, for the last of words.
// What is beside a word is left out.
func (p *project) complete(t *testing.T, words ...string) []string {
	t.Helper()
	o := p.mustRun(t, "devproxyctl", append([]string{"__complete"}, words...)...)
	var offered []string
	for line := range strings.Lines(o.stdout) {
		word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !strings.HasPrefix(word, ":") && !strings.HasPrefix(word, "_activeHelp_") {
			offered = append(offered, word)
		}
	}
	return offered
}

func wantOffered(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	for _, word := range want {
		if !slices.Contains(got, word) {
			t.Errorf("%s offers %q, without %q", what, got, word)
		}
	}
}

// A press of the Tab key knows what runs, and starts nothing.
func TestCompletion(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "ts1-http"))

	// Nothing runs, and nothing is started.
	wantOffered(t, "call without a daemon", p.complete(t, "call", ""), "dev_restart", "dev_logs")
	if got := p.complete(t, "trace", "--session", ""); len(got) > 0 {
		t.Errorf("without a daemon there are the sessions %q", got)
	}
	if live := p.live(t); len(live) > 0 {
		t.Errorf("completing has started %v", live)
	}

	// A daemon runs, and its server does not: nor does it start.
	p.startDaemon(t)
	if got := p.complete(t, "call", ""); slices.Contains(got, "echo") {
		t.Errorf("without a server call offers %q", got)
	}
	if got := p.complete(t, "prompts", "get", ""); len(got) > 0 {
		t.Errorf("without a server there are the prompts %q", got)
	}
	p.wantStarts(t, 0)

	c := p.client(t, "ts1")
	c.connect(t)
	c.wantText(t, "hi", "echo", object{"text": "hi"})
	id := "1"
	wantOffered(t, "call", p.complete(t, "call", ""), "echo", "add", "dev_restart")
	if got := p.complete(t, "call", "ec"); !slices.Equal(got, []string{"echo"}) {
		t.Errorf("call ec offers %q", got)
	}
	wantOffered(t, "call add --arg", p.complete(t, "call", "add", "--arg", ""), "a=", "b=")
	wantOffered(t, "tools", p.complete(t, "tools", ""), "echo")
	wantOffered(t, "resources read", p.complete(t, "resources", "read", ""), "test://a")
	wantOffered(t, "prompts get", p.complete(t, "prompts", "get", ""), "p")
	wantOffered(t, "prompts get p --arg", p.complete(t, "prompts", "get", "p", "--arg", ""), "lang=")
	if sessions := p.status(t).Sessions; len(sessions) > 0 {
		wantOffered(t, "trace --session", p.complete(t, "trace", "--session", ""), id)
	} else {
		t.Error("no client is attached")
	}
	wantOffered(t, "logs --generation", p.complete(t, "logs", "--generation", ""), "last", "1")
	wantOffered(t, "logs --source", p.complete(t, "logs", "--source", ""), "backend", "build", "daemon")
	wantOffered(t, "register", p.complete(t, "register", ""), "claude-code", "codex")
	p.wantStarts(t, 1)
	if sessions := p.status(t).Sessions; len(sessions) != 1 {
		t.Errorf("completing has left %d clients, want the one there was", len(sessions))
	}
}

// Nobody waits for the Tab key: a daemon that does not answer has nothing to offer.
func TestCompletionDoesNotHang(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	p.ctl(t, "call", "echo", "--arg", "text=hi")
	daemons := p.daemons(t)
	if len(daemons) != 1 {
		t.Fatalf("there are %d daemons", len(daemons))
	}
	if err := syscall.Kill(daemons[0].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(daemons[0].PID, syscall.SIGCONT) }()
	const enough = 5 * time.Second // of which completionPatience is one
	for _, words := range [][]string{{"call", ""}, {"trace", "--session", ""}, {"call", "echo", "--arg", ""}} {
		o := p.mustRun(t, "devproxyctl", append([]string{"__complete"}, words...)...)
		if o.took > enough {
			t.Errorf("%v took %v while the daemon was stopped", words, o.took)
		}
	}
}

// The scripts do in the shells what their authors meant.
func TestCompletionInShells(t *testing.T) {
	for shell, script := range map[string]string{
		// What bash does at a press of the Tab key behind "devproxyctl call ec".
		"bash": `
			source "$BASH_COMPLETION"
			source <(devproxyctl completion bash)
			COMP_WORDS=(devproxyctl call ec) COMP_CWORD=2 COMP_LINE="devproxyctl call ec" COMP_POINT=19 COMP_TYPE=9
			__start_devproxyctl
			printf '%s\n' "${COMPREPLY[@]}"`,
		// Completion works in the line editor alone, which wants a terminal.
		"zsh": `
			zmodload zsh/zpty && zpty shell zsh -f -i || exit 1
			zpty -w shell 'autoload -Uz compinit && compinit -u -D && source <(devproxyctl completion zsh)'
			zpty -w shell 'show() { print -r -- "[[$BUFFER]]"; BUFFER=; }; zle -N show; bindkey "^X" show; print READ""Y'
			zpty -r -m shell seen '*READY*'
			zpty -wn shell $'devproxyctl call ec\t\x18'
			zpty -r -m shell seen '*]]*'
			zpty -d shell
			print -r -- ${${${seen##*\[\[}%%\]\]*}##* call }`,
		"fish": `
			devproxyctl completion fish | source
			complete --do-complete "devproxyctl call ec"`,
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("there is no %s here", shell)
			}
			var bashCompletion string
			if shell == "bash" {
				bashCompletion = bashCompletionScript(t)
			}
			p := newProject(t)
			p.use(t, backendNamed(t, "go-stdio"))
			p.ctl(t, "call", "echo", "--arg", "text=hi")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			command := exec.CommandContext(ctx, path, "-c", script)
			command.Dir = p.root
			command.Env = append(p.terminalEnv(), "BASH_COMPLETION="+bashCompletion)
			for i, variable := range command.Env {
				if value, ok := strings.CutPrefix(variable, "PATH="); ok {
					command.Env[i] = "PATH=" + filepath.Dir(program(t, "devproxyctl")) + ":" + value
				}
			}
			stderr := &lockedBuffer{}
			command.Stderr = stderr // on which bash complains that nobody has pressed a key
			output, err := command.Output()
			if word, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\t"); err != nil || word != "echo" {
				t.Errorf("%s completes \"devproxyctl call ec\" with %q, want echo; %v\n%s", shell, output, err, stderr)
			}
			p.wantStarts(t, 1)
		})
	}
}

// bashCompletionScript is what bash needs for the completion of any program.
func bashCompletionScript(t *testing.T) string {
	t.Helper()
	for _, path := range []string{
		"/usr/share/bash-completion/bash_completion", "/opt/homebrew/etc/profile.d/bash_completion.sh", "/usr/local/etc/profile.d/bash_completion.sh",
	} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("there is no bash-completion here")
	return ""
}
