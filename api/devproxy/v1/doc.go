// Package devproxyv1 is the generated contract between the devproxy daemon and
// the programs that talk to it. Its source is proto/devproxy/v1; run
// "make proto" after a change there.
package devproxyv1
