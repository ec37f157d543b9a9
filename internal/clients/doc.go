// Package clients knows where MCP clients keep the servers they start, and puts
// the shim there and takes it out again.
//
// An edit is a pure function of a file's bytes. It splices text into them, so that
// comments, the order of keys, indentation, line ends and a byte order mark stay
// as they are, and it proves itself before it is handed out: the result must parse,
// and but for the one entry it must mean what the file meant before.
//
// The table of clients names for each row the documentation that its places and
// its format were taken from. A client whose format is not documented has no row.
package clients
