// Package wire reads and writes JSON-RPC 2.0 frames without decoding what they carry.
//
// devproxy promises that what it relays arrives as it was sent: member order, number text
// (9007199254740993, 1.0, 1e400), escapes, duplicate and unknown members. encoding/json cannot keep
// that promise: it reorders and merges members, rounds numbers and escapes "<". So this package only
// finds where things begin and end. [Parse] walks a frame once, validates it, and returns slices of it;
// an [Object] splits one object into members and replaces only those that are set; everything else
// leaves as the bytes that came in.
//
// What is normalised is the envelope alone, because both official TypeScript clients drop a message
// with one unknown member beside the known ones: unknown top-level members and "params":null do not
// survive Parse and Append.
//
// Limits of the promise: text must be strict RFC 8259 JSON in valid UTF-8, nested at most [MaxNesting]
// deep; unpaired \u surrogates are legal and pass. When an Object is changed, the white space between
// its own members is lost, never that inside a value.
//
// Nothing here is safe for concurrent use of one value; distinct values are independent.
package wire
