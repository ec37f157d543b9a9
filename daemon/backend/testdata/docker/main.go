//go:build unix

// Command docker stands in for the docker and podman CLIs and their engine in
// the tests of container backends, as no engine is at hand there. It does what
// the documentation of these programs says, as far as the tests go:
//
//   - docker [--context C] [--host H] [container] run [-i] [--rm] [--name N]
//     [-p IP:PORT:PORT] [-e K[=V]] [--label K=V] [--network N] IMAGE ARG…
//   - docker ps [-a] [-q] [--filter label=K[=V]]…, rm --force ID…, inspect ID…
//
// What matters is what survives what. A container is a process in a session of
// its own with an environment of its own; its parent is an engine process that
// outlives the CLI. The CLI only carries its streams, the end of its stdin (with
// -i) and the signals that can be caught. Killed with SIGKILL it leaves the
// container running, which then meets the end of its stdin and nothing else;
// --rm happens when the container ends. A published port is listened on by the
// engine, from before the container listens. There are no network namespaces: in
// place of the container's port, wherever that is a whole word of its arguments
// or the value of a variable, it gets a free one.
//
// The engine's state is the folder that DOCKER_HOST or --host names as
// unix://DIR, or DOCKER_CONFIG/C for a context; an image is a program in
// DIR/images. Every call is a line of DIR/calls, and so is a container that
// starts beside another with the same value of a label devproxy.project. The
// file DIR/faults/COMMAND makes that command misbehave: "hang" never answers,
// "deaf" (run) heeds neither SIGTERM nor the end of stdin, "brittle" (run) dies
// of a signal and does not pass it on, as with -t, anything else is an error
// message; after "once " it applies to one call.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// program is the name we go by.
var program = filepath.Base(os.Args[0])

func main() {
	if os.Args[0] == "engine" {
		keep(os.Args[1], os.Args[2])
		return
	}
	dir, args := global(os.Args[1:])
	if len(args) > 0 && args[0] == "container" {
		args = args[1:]
	}
	if len(args) == 0 {
		die(1, "Usage:  %s [OPTIONS] COMMAND", program)
	}
	note(dir, program+" "+strings.Join(os.Args[1:], " "))
	misbehave(dir, args[0])
	switch args[0] {
	case "run":
		run(dir, args[1:])
	case "ps":
		list(dir, args[1:])
	case "rm":
		remove(dir, args[1:])
	case "inspect":
		inspect(dir, args[1:])
	default:
		die(1, "%s: unknown command: %s %s", program, program, args[0])
	}
}

func die(code int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(code)
}

// global reads the global options and returns the engine's folder.
func global(args []string) (dir string, rest []string) {
	host := os.Getenv("DOCKER_HOST")
	if program == "podman" {
		host = os.Getenv("CONTAINER_HOST")
	}
	for len(args) > 1 && strings.HasPrefix(args[0], "-") {
		name, value, joined := strings.Cut(args[0], "=")
		switch {
		case name == "--debug" || name == "-D":
			args = args[1:]
			continue
		case !joined:
			value, args = args[1], args[1:]
		}
		switch name {
		case "--host", "-H", "--url":
			host = value
		case "--context", "-c", "--connection":
			host = "unix://" + filepath.Join(os.Getenv("DOCKER_CONFIG"), value)
		case "--log-level", "-l":
		default:
			die(125, "unknown flag: %s", name)
		}
		args = args[1:]
	}
	dir, ok := strings.CutPrefix(host, "unix://")
	if _, err := os.Stat(dir); !ok || err != nil {
		code := 1
		if slices.Contains(args, "run") {
			code = 125
		}
		die(code, "Cannot connect to the Docker daemon at %s. Is the docker daemon running?", host)
	}
	return dir, args
}

// note adds a line to the calls.
func note(dir, line string) {
	file, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, line)
	}
	if err != nil {
		die(1, "%v", err)
	}
	_ = file.Close()
}

// fault returns how a command is to misbehave.
func fault(dir, command string) string {
	path := filepath.Join(dir, "faults", command)
	content, _ := os.ReadFile(path)
	text, once := strings.CutPrefix(string(content), "once ")
	if once {
		_ = os.Remove(path)
	}
	return text
}

func misbehave(dir, command string) {
	switch text := fault(dir, command); text {
	case "", "deaf", "brittle":
	case "hang":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		time.Sleep(time.Hour)
	default:
		die(1, "%s", text)
	}
}

// container is one, as it is kept in DIR/containers/ID.
type container struct {
	ID, Name, Network string
	Image             string
	Args, Env         []string
	Labels            map[string]string
	Ports             []port
	Interactive       bool
	Remove            bool
	Pid               int // 0: it has ended; starting: not yet there
}

// starting is the Pid of a container that the engine is starting. Whoever wants
// it removed waits for the end of that, as for an engine's lock.
const starting = -1

type port struct{ HostIP, HostPort, Port string }

func (c container) file(dir string) string { return filepath.Join(dir, "containers", c.ID) }

func (c container) write(dir string) error {
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	next := c.file(dir) + "~"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, c.file(dir))
}

func containers(dir string) []container {
	paths, _ := filepath.Glob(filepath.Join(dir, "containers", "*"))
	var all []container
	for _, path := range paths {
		var c container
		content, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(content, &c) == nil && !strings.HasSuffix(path, "~") {
			all = append(all, c)
		}
	}
	return all
}

// find returns the one whose id begins so.
func find(dir, id string) (container, bool) {
	all := containers(dir)
	i := slices.IndexFunc(all, func(c container) bool { return id != "" && strings.HasPrefix(c.ID, id) })
	if i < 0 {
		return container{}, false
	}
	return all[i], true
}

func parseRun(dir string, args []string) container {
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	c := container{ID: hex.EncodeToString(random), Labels: map[string]string{}, Network: "bridge", Pid: starting}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOSTNAME=" + c.ID[:12]}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		switch name {
		case "-i", "--interactive":
			c.Interactive = true
			continue
		case "--rm":
			c.Remove = true
			continue
		}
		if !joined && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		switch name {
		case "--name":
			c.Name = value
		case "--network", "--net":
			c.Network = value
		case "-l", "--label":
			key, text, _ := strings.Cut(value, "=")
			c.Labels[key] = text
		case "-e", "--env":
			if !strings.Contains(value, "=") {
				value += "=" + os.Getenv(value)
			}
			c.Env = append(c.Env, value)
		case "-p", "--publish":
			parts := strings.Split(value, ":")
			if len(parts) == 2 {
				parts = append([]string{"0.0.0.0"}, parts...)
			}
			c.Ports = append(c.Ports, port{parts[0], parts[1], parts[2]})
		default:
			die(125, "unknown flag: %s", name)
		}
	}
	if len(args) == 0 {
		die(125, "%s: 'run' requires at least 1 argument", program)
	}
	c.Image, c.Args = filepath.Join(dir, "images", args[0]), args[1:]
	if _, err := os.Stat(c.Image); err != nil {
		die(125, "Unable to find image '%s' locally", args[0])
	}
	return c
}

// run is the CLI of one container: it lets the engine start it, carries its
// streams and signals, and ends as it ends.
func run(dir string, args []string) {
	c := parseRun(dir, args)
	for _, other := range containers(dir) {
		if c.Name != "" && other.Name == c.Name {
			die(125, `%s: Error response from daemon: Conflict. The container name "/%s" is already in use by container "%s".`,
				program, c.Name, other.ID)
		}
		if c.Labels["devproxy.project"] == other.Labels["devproxy.project"] && c.Labels["devproxy.project"] != "" {
			note(dir, "overlap "+other.ID+" "+c.ID)
		}
	}
	if err := c.write(dir); err != nil {
		die(125, "%v", err)
	}
	how := fault(dir, "run")
	deaf := how == "deaf"
	signals := make(chan os.Signal, 8)
	if how != "brittle" {
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}

	stdin, stdout, stderr, status := mustPipe(), mustPipe(), mustPipe(), mustPipe()
	self, err := os.Executable()
	if err != nil {
		die(125, "%v", err)
	}
	engine := &exec.Cmd{
		Path: self, Args: []string{"engine", dir, c.ID}, Env: []string{"PATH=" + os.Getenv("PATH")},
		ExtraFiles:  []*os.File{stdin.read, stdout.write, stderr.write, status.write},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := engine.Start(); err != nil {
		die(125, "%v", err)
	}
	for _, theirs := range engine.ExtraFiles {
		_ = theirs.Close()
	}
	answers := bufio.NewScanner(status.read)
	if !answers.Scan() || answers.Text() != "running" {
		die(125, "%s: Error response from daemon: %s", program, answers.Text())
	}
	go func() {
		_, _ = io.Copy(stdin.write, os.Stdin)
		if !deaf {
			_ = stdin.write.Close()
		}
	}()
	var output sync.WaitGroup
	output.Go(func() { _, _ = io.Copy(os.Stdout, stdout.read) })
	output.Go(func() { _, _ = io.Copy(os.Stderr, stderr.read) })
	go func() {
		for s := range signals {
			running, ok := find(dir, c.ID)
			if number, isNumber := s.(syscall.Signal); ok && isNumber && running.Pid > 0 && !deaf {
				_ = syscall.Kill(running.Pid, number)
			}
		}
	}()
	code := 137 // what the engine says of one that it killed
	if answers.Scan() {
		code, _ = strconv.Atoi(answers.Text())
	}
	output.Wait()
	os.Exit(code)
}

type pipe struct{ read, write *os.File }

func mustPipe() pipe {
	read, write, err := os.Pipe()
	if err != nil {
		die(125, "%v", err)
	}
	return pipe{read, write}
}

// keep is the engine's part of one container, from its start to its end.
func keep(dir, id string) {
	stdin, stdout, stderr, status := os.NewFile(3, "stdin"), os.NewFile(4, "stdout"), os.NewFile(5, "stderr"), os.NewFile(6, "status")
	c, ok := find(dir, id)
	if !ok {
		os.Exit(1)
	}
	err := publish(&c)
	out, diagnostics := mustPipe(), mustPipe()
	command := &exec.Cmd{
		Path: c.Image, Args: append([]string{c.Image}, c.Args...), Env: c.Env, Dir: "/",
		Stdout: out.write, Stderr: diagnostics.write, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	var input io.WriteCloser
	if err == nil && c.Interactive {
		input, err = command.StdinPipe()
	}
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		_ = os.Remove(c.file(dir))
		fmt.Fprintln(status, err)
		return
	}
	c.Pid = command.Process.Pid
	_ = c.write(dir)
	fmt.Fprintln(status, "running")
	if input != nil {
		go func() {
			_, _ = io.Copy(input, stdin)
			_ = input.Close()
		}()
	}
	_ = out.write.Close()
	_ = diagnostics.write.Close()
	var logging sync.WaitGroup
	logging.Go(func() { _, _ = io.Copy(lossy{stdout}, out.read) })
	logging.Go(func() { _, _ = io.Copy(lossy{stderr}, diagnostics.read) })
	_ = command.Wait()
	// With its first process the container ends.
	_ = syscall.Kill(-c.Pid, syscall.SIGKILL)
	logging.Wait()
	code := command.ProcessState.ExitCode()
	if code < 0 {
		code = 128 + int(command.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	if c.Pid = 0; c.Remove {
		_ = os.Remove(c.file(dir))
	} else {
		_ = c.write(dir)
	}
	fmt.Fprintln(status, code)
}

// lossy is a log that takes everything, whether or not a CLI listens.
type lossy struct{ file *os.File }

func (l lossy) Write(b []byte) (int, error) {
	_, _ = l.file.Write(b)
	return len(b), nil
}

// publish listens for the container on its published ports, and tells it which
// ports it has in place of its own.
func publish(c *container) error {
	for _, p := range c.Ports {
		l, err := net.Listen("tcp", net.JoinHostPort(p.HostIP, p.HostPort))
		if err != nil {
			return fmt.Errorf("driver failed programming external connectivity: Bind for %s:%s failed: port is already allocated",
				p.HostIP, p.HostPort)
		}
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		inside := free.Addr().String()
		_ = free.Close()
		_, number, _ := net.SplitHostPort(inside)
		for i, variable := range c.Env {
			if name, value, _ := strings.Cut(variable, "="); value == p.Port {
				c.Env[i] = name + "=" + number
			}
		}
		for i, arg := range c.Args {
			if arg == p.Port {
				c.Args[i] = number
			}
		}
		go forward(l, inside)
	}
	return nil
}

func forward(l net.Listener, address string) {
	for {
		outer, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer outer.Close()
			inner, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer inner.Close()
			go func() {
				_, _ = io.Copy(inner, outer)
				_ = inner.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(outer, inner)
		}()
	}
}

// list is ps.
func list(dir string, args []string) {
	all, quiet := false, false
	var filters []string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--all", "-a":
			all = true
		case "--quiet", "-q":
			quiet = true
		case "-aq":
			all, quiet = true, true
		case "--filter", "-f":
			i++
			filters = append(filters, strings.TrimPrefix(args[i], "label="))
		default:
			die(125, "unknown flag: %s", args[i])
		}
	}
	for _, c := range containers(dir) {
		if c.Pid == 0 && !all || slices.ContainsFunc(filters, func(f string) bool { return !c.has(f) }) {
			continue
		}
		if quiet {
			fmt.Println(c.ID[:12])
		} else {
			fmt.Println(c.ID[:12], filepath.Base(c.Image), c.Name, c.Labels)
		}
	}
}

func (c container) has(label string) bool {
	key, value, exact := strings.Cut(label, "=")
	text, ok := c.Labels[key]
	return ok && (!exact || text == value)
}

// remove is rm --force. It goes through all of them and fails for those that it
// does not find.
func remove(dir string, args []string) {
	code, force := 0, false
	for _, id := range args {
		switch id {
		case "--force", "-f":
			force = true
			continue
		case "--volumes", "-v":
			continue
		}
		c, ok := find(dir, id)
		switch {
		case !ok:
			fmt.Fprintf(os.Stderr, "Error response from daemon: No such container: %s\n", id)
			code = 1
			continue
		case c.Pid != 0 && !force:
			fmt.Fprintf(os.Stderr, "Error response from daemon: cannot remove container %q: container is running\n", id)
			code = 1
			continue
		case c.Pid != 0:
			if err := end(dir, c); err != nil {
				die(1, "Error response from daemon: %v", err)
			}
		}
		_ = os.Remove(c.file(dir))
		fmt.Println(id)
	}
	os.Exit(code)
}

// end kills a container and waits until the engine has seen it.
func end(dir string, c container) error {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		now, ok := find(dir, c.ID)
		if !ok || now.Pid == 0 {
			return nil
		}
		if now.Pid > 0 {
			_ = syscall.Kill(-now.Pid, syscall.SIGKILL)
		}
	}
	return errors.New("tried to kill container, but did not receive an exit event")
}

func inspect(dir string, ids []string) {
	described := []any{}
	code := 0
	for _, id := range ids {
		c, ok := find(dir, id)
		if !ok {
			fmt.Fprintf(os.Stderr, "Error: No such object: %s\n", id)
			code = 1
			continue
		}
		ports := map[string][]map[string]string{}
		for _, p := range c.Ports {
			ports[p.Port+"/tcp"] = append(ports[p.Port+"/tcp"], map[string]string{"HostIp": p.HostIP, "HostPort": p.HostPort})
		}
		described = append(described, map[string]any{
			"Id":              c.ID,
			"Name":            "/" + c.Name,
			"State":           map[string]any{"Running": c.Pid > 0, "Pid": c.Pid},
			"Config":          map[string]any{"Labels": c.Labels, "Env": c.Env},
			"HostConfig":      map[string]any{"NetworkMode": c.Network, "AutoRemove": c.Remove},
			"NetworkSettings": map[string]any{"Ports": ports},
		})
	}
	_ = json.NewEncoder(os.Stdout).Encode(described)
	os.Exit(code)
}
