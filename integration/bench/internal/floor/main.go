// Command floor is what a measurement of devproxy cannot go below: the same
// processes and channels with nothing in them.
//
//	floor start           write a line and end: the start of a program that links gRPC
//	floor pipe            send each line back
//	floor client SOCKET   carry lines to and from a stream, as a shim does
//	floor echo SOCKET     serve streams that send each message back
//	floor relay SOCKET -- COMMAND…
//	                      serve streams whose messages go to the stdin of a COMMAND,
//	                      and whose answers are its lines: a daemon without a thought
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	window      = 1 << 20
	pipeSize    = 64 << 10
	messageSize = 16 << 20
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "start":
		_, err := io.WriteString(os.Stdout, "started\n")
		return err
	case len(args) == 1 && args[0] == "pipe":
		return eachLine(os.Stdin, func(line []byte) error {
			_, err := os.Stdout.Write(line)
			return err
		})
	case len(args) == 2 && args[0] == "client":
		return carry(args[1])
	case len(args) == 2 && args[0] == "echo":
		return serve(args[1], func(stream grpc.ServerStream) error {
			for {
				var message []byte
				if err := stream.RecvMsg(&message); err != nil {
					return err
				}
				if err := stream.SendMsg(&message); err != nil {
					return err
				}
			}
		})
	case len(args) >= 4 && args[0] == "relay" && args[2] == "--":
		return relay(args[1], args[3:])
	}
	return errors.New("usage: floor start | pipe | client SOCKET | echo SOCKET | relay SOCKET -- COMMAND…")
}

// eachLine calls do for every line, its end included.
func eachLine(r io.Reader, do func(line []byte) error) error {
	lines := bufio.NewReaderSize(r, pipeSize)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(line); err != nil {
			return err
		}
	}
}

// plain carries the bytes of a message and nothing about them.
type plain struct{}

// Marshal implements encoding.CodecV2.
func (plain) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a message of type %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*message)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (plain) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message of type %T", v)
	}
	*message = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2.
func (plain) Name() string { return "plain" }

var description = grpc.StreamDesc{StreamName: "Carry", ServerStreams: true, ClientStreams: true}

const method = "/floor/Carry"

func serve(socket string, handle func(grpc.ServerStream) error) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(plain{}), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.MaxRecvMsgSize(messageSize),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return handle(stream) }))
	return server.Serve(listener)
}

func carry(socket string) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{}), grpc.MaxCallRecvMsgSize(messageSize)))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := conn.NewStream(context.Background(), &description, method)
	if err != nil {
		return err
	}
	ends := make(chan error, 2) // the first one ends the process, whatever the other waits for
	go func() {
		for {
			var message []byte
			err := stream.RecvMsg(&message)
			if err == nil {
				_, err = os.Stdout.Write(message)
			}
			if err != nil {
				ends <- err
				return
			}
		}
	}()
	go func() { ends <- eachLine(os.Stdin, func(line []byte) error { return stream.SendMsg(&line) }) }()
	if err := <-ends; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// relay gives each stream a server of its own: clients open a second one to find
// out which era a server speaks.
func relay(socket string, command []string) error {
	return serve(socket, func(stream grpc.ServerStream) error {
		server := exec.Command(command[0], command[1:]...)
		server.Stderr = os.Stderr
		in, err := server.StdinPipe()
		if err != nil {
			return err
		}
		out, err := server.StdoutPipe()
		if err != nil {
			return err
		}
		if err := server.Start(); err != nil {
			return err
		}
		var back sync.WaitGroup
		back.Go(func() { _ = eachLine(out, func(line []byte) error { return stream.SendMsg(&line) }) })
		for err == nil {
			var message []byte
			if err = stream.RecvMsg(&message); err == nil {
				_, err = in.Write(message)
			}
		}
		in.Close()
		back.Wait()
		return errors.Join(err, server.Wait())
	})
}
