// Package config reads devproxy.toml, the one file that says how a project's
// backend is started, built and watched, and what its clients are offered.
//
// Reading is strict. A key that does not exist, a value of the wrong type and a
// value that cannot work are errors that name file, line and key, and all of
// them are reported at once. What is not said has a default; only the
// backend's command has none, and its port where nothing tells that the
// backend takes a port as it is given.
//
// All keys stand in one table ([Keys]) with type, default and meaning. The
// decoder, the defaults and the reference in the documentation ([Reference])
// come from that table, so they cannot disagree.
//
// The package looks at the file and at nothing else: it does not check that
// programs or directories exist, for a build may yet create them, and it reads
// no environment. Only [Config.LoadEnv] and [Config.DeriveEntry] look at other
// files, and they do so when they are called.
package config
