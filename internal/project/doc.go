// Package project says which project a directory belongs to and where the
// state of that project lives.
//
// A project is a folder that holds a devproxy.toml. Its identity is the
// canonical path of that folder: absolute, free of symbolic links, and on
// macOS in the spelling the file system keeps. Of a folder that is mounted at
// several paths it is the one at which it was used first. Two paths to one folder
// are therefore one project, and one project has one daemon.
//
// Where the state lives follows from the user id and the home directory alone.
// XDG_STATE_HOME, XDG_RUNTIME_DIR and TMPDIR are ignored on purpose: MCP
// clients start the shim with HOME, LOGNAME, PATH, SHELL, TERM and USER only,
// and it must find the daemon that a terminal with a full environment started.
//
// The package reads no configuration; it only finds the file. The folders it
// hands out are verified before use (ours, mode 0700, no symbolic link), and so
// are the files in them (mode 0600) and, with CheckPeer, whoever is at the other
// end of a socket. On Windows, where access follows from the ACL that
// LocalAppData passes on, only the kind of the file is checked.
package project
