// Package scaffold makes the first devproxy.toml of a project: it looks at what
// the project says of itself and of its server, and decides how the server is
// built, started and watched.
//
// It reads the files it is given and nothing else, runs nothing, and writes
// nothing. What it finds is weighed in this order: a command that a person gave,
// the variables of mcp-debugger's dev-proxy, an entry in the configuration of an
// MCP client that starts the server itself, and last what package.json,
// pyproject.toml, go.mod or Cargo.toml say. Each decision carries its reason, so
// that a person can tell a good guess from a bad one.
package scaffold
