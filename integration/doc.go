// Package integration holds devproxy's black-box tests: the real programs,
// official MCP clients in front of them and real MCP servers behind them.
//
// Nothing here imports the code under test. A test sees what a user sees:
// commands with flags and exit codes, devproxy.toml, files, processes, and
// JSON-RPC on the standard streams of a shim. What a package promises inside
// is tested beside it.
//
// # The pieces
//
//   - project is a project folder with a home of its own, so that its daemon
//     is no other test's. When its test ends it stops the daemon and fails the
//     test for whatever is left: a process, a socket, a temporary file, a data
//     race that one of the programs reported, two backends alive at once.
//   - client is an MCP client with the same operations whatever SDK it is
//     made of: TypeScript 2.4.0 and 1.32.2 in one Node process
//     (testdata/node/clients) that speaks lines of JSON with the tests, the
//     go-sdk in this process. Each starts the shim as an application would,
//     with the environment that SDK clients pass on. rawClient has no SDK and
//     writes what it is told.
//   - backend is a server that can stand behind devproxy, and how to
//     configure it: fixtures with the same tools in three SDKs
//     (testdata/node/servers, internal/goserver), and published servers.
//
// docker_test.go has a server in a container of testdata/docker of
// daemon/backend, as no container engine is at hand.
//
// direct_test.go puts every client straight on every fixture server: what does
// not hold without devproxy need not hold with it.
//
// matrix_test.go puts every client on every server behind devproxy, alone and
// in couples of two eras, through a restart. differential_test.go compares what a
// client reads directly and behind devproxy to the byte. conformance_test.go does
// the same with the verdicts of the official scenarios; make conformance runs it.
//
// The tests need Node; make installs the packages. They skip under -short and,
// outside CI, where there is no Node. They run where processes have groups and
// signals; what they leave running is found by environment on Linux and by
// path elsewhere.
package integration
