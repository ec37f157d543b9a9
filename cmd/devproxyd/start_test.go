//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/project"
)

// scriptedDaemon tells a status, and notes how it was asked to end.
type scriptedDaemon struct {
	devproxyv1.UnimplementedControlServiceServer

	status *client.Status
	pid    int64 // that it gives as its own

	mu    sync.Mutex
	asked []string
}

func (d *scriptedDaemon) GetStatus(context.Context, *devproxyv1.GetStatusRequest) (*devproxyv1.GetStatusResponse, error) {
	return &devproxyv1.GetStatusResponse{Status: d.status}, nil
}

func (d *scriptedDaemon) Shutdown(_ context.Context, r *devproxyv1.ShutdownRequest) (*devproxyv1.ShutdownResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetHandover() {
		d.asked = append(d.asked, "handover")
		return nil, status.Error(codes.Internal, "it was only a question")
	}
	d.asked = append(d.asked, "stop")
	return &devproxyv1.ShutdownResponse{Pid: d.pid}, nil
}

// serve serves a project of its own, which is the working directory then.
func (d *scriptedDaemon) serve(t *testing.T) {
	t.Helper()
	base, err := os.MkdirTemp("", "dpd") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	t.Setenv("HOME", base)
	t.Setenv("DEVPROXY_SOCKET", "")
	root, bin := filepath.Join(base, "project"), filepath.Join(base, "bin")
	if err := errors.Join(
		os.Mkdir(root, 0o700), os.Mkdir(bin, 0o700),
		os.WriteFile(filepath.Join(root, project.ConfigName), []byte("[backend]\ncommand = \"true\"\ntransport = \"stdio\"\n"), 0o600),
		// What a restart would start in its place.
		os.WriteFile(filepath.Join(bin, "devproxyd"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Chdir(root)
	p, err := project.At(root)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := p.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d.status.Daemon.ProjectRoot = p.Root
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	devproxyv1.RegisterControlServiceServer(server, d)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A daemon of another contract is told to the person, who decides: start leaves
// it alone, restart replaces only an older one, and stop stops any.
func TestAnotherContract(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	const older, newer = client.Contract - 1, client.Contract + 1
	for _, test := range []struct {
		command  string
		contract uint32
		code     int
		stderr   string
		asked    string
	}{
		{"start", client.Contract, cli.ExitOK, "talks to the running devproxyd v-other", ""},
		{"start", older, cli.ExitFailed, "update the running devproxyd; \"devproxyd restart\" replaces", ""},
		{"start", newer, cli.ExitFailed, "update devproxyd\n", ""},
		{"restart", older, cli.ExitFailed, "handing over: ", "handover"},
		{"restart", newer, cli.ExitFailed, "update devproxyd\n", ""},
		{"stop", older, cli.ExitOK, "", "stop"},
		{"stop", newer, cli.ExitOK, "", "stop"},
	} {
		d := &scriptedDaemon{
			status: &client.Status{Daemon: &client.Daemon{Version: "v-other", Contract: new(test.contract)}},
			pid:    int64(ended.Process.Pid),
		}
		d.serve(t)
		var stdout, stderr bytes.Buffer
		root := newRoot()
		root.SetArgs([]string{test.command})
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		code := cli.Main(root)
		if code != test.code || !strings.Contains(stderr.String(), test.stderr) || (test.stderr == "") != (stderr.Len() == 0) {
			t.Errorf("%s with contract %d: exit code %d, stdout %q, stderr %q", test.command, test.contract, code, &stdout, &stderr)
		}
		if asked := strings.Join(d.asked, " "); asked != test.asked {
			t.Errorf("%s with contract %d: the daemon was asked for %q, want %q", test.command, test.contract, asked, test.asked)
		}
	}
}
