// Package demo shows the product's main job on a machine that has nothing
// else: it brings an example backend and a script that plays a client, a
// rebuild and a crash against the real programs.
//
// Neither is part of the daemon's work; both are here because "devproxyd demo"
// must need no file but the three programs.
package demo
