// Package era translates between the protocol eras.
package era
