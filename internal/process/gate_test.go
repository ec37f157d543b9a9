package process

import (
	"bytes"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func FuzzGateMessage(f *testing.F) {
	f.Add("/bin/sh", "/tmp", "-c\necho", "A=1\nB=", "hash:1")
	f.Add("x", "", "", "", "")
	f.Add("x", "\xff", "\n\n", "\xfe=\n\nDEVPROXY_BACKEND=old", "m")
	f.Fuzz(func(t *testing.T, path, dir, args, env, marker string) {
		spec := Spec{Path: path, Dir: dir, Args: strings.Split(args, "\n"), Env: strings.Split(env, "\n"), Marker: marker}
		message, err := encode(spec)
		if err != nil {
			if path != "" && !strings.Contains(path+dir+args+env+marker, "\x00") {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		got, err := decode(bytes.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		want := Spec{Path: path, Dir: dir, Args: spec.Args, Env: markerEnv(spec.Env, marker)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		// A daemon that dies while it writes has released nothing.
		for cut := range message {
			if spec, err := decode(bytes.NewReader(message[:cut])); err == nil {
				t.Fatalf("%d of %d bytes opened the gate for %+v", cut, len(message), spec)
			}
		}
	})
}

func TestDecodeRefusesNonsense(t *testing.T) {
	for _, message := range []string{
		"", "\x00", "\xff\xff\xff\xff", "\x00\x00\x00\x01a", "\x00\x00\x00\x07d\x00p\x00v\x009",
		"\x00\x00\x00\x08d\x00p\x00v\x00-1", "\x00\x00\x00\x07d\x00p\x00v\x00x",
	} {
		if spec, err := decode(strings.NewReader(message)); err == nil {
			t.Errorf("%q gave %+v", message, spec)
		}
	}
}

func TestMarkerReplacesAnInheritedOne(t *testing.T) {
	got := markerEnv([]string{"A=1", "DEVPROXY_BACKEND=old:1", "DEVPROXY_BACKENDS=2"}, "new:2")
	if want := []string{"DEVPROXY_BACKEND=new:2", "A=1", "DEVPROXY_BACKENDS=2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFailurePassesTheStatusPipe(t *testing.T) {
	for _, failure := range []*ExecError{
		newExecError(opRun, "/x", syscall.ENOENT),
		newExecError(opEnter, "/a b\n", syscall.EACCES),
		newExecError(opRun, "", &fs.PathError{Op: "fork", Path: "/x", Err: syscall.ENOENT}),
	} {
		got, ok := errors.AsType[*ExecError](decodeFailure(bytes.NewReader(encodeFailure(failure))))
		if !ok || got.Error() != failure.Error() || !errors.Is(got, fs.ErrNotExist) && !errors.Is(got, fs.ErrPermission) {
			t.Errorf("%#v arrived as %#v", failure, got)
		}
	}
	if err := decodeFailure(bytes.NewReader(encodeFailure(nil))); err != nil {
		t.Errorf("no failure arrived as %v", err)
	}
	if err := decodeFailure(strings.NewReader("")); (err == nil) != execClosesStatus {
		t.Errorf("silence means %v", err)
	}
	for _, torn := range []string{"\x00", "\x00\x00\x00\x09half a", "\x00\x00\x00\x06half a"} {
		if err := decodeFailure(strings.NewReader(torn)); err == nil {
			t.Errorf("%q means success", torn)
		}
	}
}
