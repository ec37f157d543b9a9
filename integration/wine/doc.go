// Package wine runs the Windows programs and the Windows tests of some packages
// under wine, on Linux: "make wine". It is no part of "make test", which needs
// no wine and skips it.
//
// It was made with wine 8, as Debian 12 has it. What that one lacks is met as
// follows; the product knows nothing of wine:
//
//   - AF_UNIX sockets: asking for one fails with WSAEAFNOSUPPORT (10047). So no
//     daemon can serve there. The programs are run as far as they get: each must
//     say in words what is wrong, and end. Where sockets work the demo is run,
//     which needs them. The chain from a client through the shim and the daemon to a
//     tree of processes is a test of package daemon, within one process.
//   - ProcessPrng: no program of Go starts without it. A bcryptprimitives.dll
//     that forwards it to an older function of the same kind is put into the
//     prefix, unless wine brings one.
//   - POSIX deletes: os.RemoveAll, and so every T.TempDir, fails, because wine
//     answers STATUS_NOT_IMPLEMENTED where Go expects another word for "not
//     supported". The test binaries are built with a copy of the standard
//     library's file that knows this one too; the programs are not.
//   - CTRL_BREAK, which wine's server refuses, and who has bound a port, which it
//     does not tell: the tests of both skip themselves.
//   - Directories that vanish although they are watched, and symbolic links:
//     the tests of package watch that need them are left out.
//
// In the end no process of the tests may be left in the prefix.
package wine
