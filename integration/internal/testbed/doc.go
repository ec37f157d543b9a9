// Package testbed is what the black-box tests share: building the programs
// under test, folders with short names, and the processes that are alive.
package testbed
