package config

import (
	"fmt"
	"strings"
)

// Key is one key of devproxy.toml.
type Key struct {
	// Table and Name make the full name: "backend" and "command".
	Table, Name string
	// Type is what may be written, in words.
	Type string
	// Default is TOML; empty where the key has none, or one that depends on others.
	Default string
	// Doc says what the key is for, in Markdown, without a final period.
	Doc string

	set func(*Config, any) error
}

// FullName is the key with its table: "backend.command".
func (k Key) FullName() string { return k.Table + "." + k.Name }

// The types of Keys in words.
const (
	typeString   = "string"
	typeDuration = "duration"
	typeSize     = "size"
	typePort     = "integer"
	typeStrings  = "array of strings"
	typeCommand  = "string or array of strings"
	typeEnv      = "table of strings"
)

// Keys are all keys in the order of the reference.
func Keys() []Key {
	return []Key{
		{
			"backend", "command", typeCommand, "",
			"The program that starts your server, and its arguments. Required. One string is split into " +
				"words as a shell splits them (quotes and backslashes), but no shell runs it: variables other " +
				"than `$PORT`, pipes and `~` are errors. `{port}` stands for the port",
			func(c *Config, v any) error { return setCommand(&c.Backend.Command, v) },
		},
		{
			"backend", "transport", oneOf(HTTP, Stdio, SSE), `"http"`,
			"How the server speaks MCP: Streamable HTTP, standard input and output, or the old HTTP+SSE",
			func(c *Config, v any) error { return setChoice(&c.Backend.Transport, v, HTTP, Stdio, SSE) },
		},
		{
			"backend", "port", typePort, "",
			"The port that the server listens on. 0 = a free one, chosen at each start, anew if somebody else " +
				"takes it before the server does, and passed as `{port}` " +
				"and as `$PORT`. Default: 0 where `command` or `env` mentions `{port}` or `$PORT`; otherwise it is " +
				"required for `http` and `sse`",
			func(c *Config, v any) error { return setInt(&c.Backend.Port, v, 0, 65535) },
		},
		{
			"backend", "path", typeString, `"/mcp"`,
			"The endpoint of an `http` or `sse` server. Default for `sse`: `\"/sse\"`",
			func(c *Config, v any) error { return setURLPath(&c.Backend.Path, v, false) },
		},
		{
			"backend", "health", typeString, `""`,
			"A path to GET until it answers with success before the server counts as started. Without it the " +
				"port must accept, then the handshake must succeed",
			func(c *Config, v any) error { return setURLPath(&c.Backend.Health, v, true) },
		},
		{
			"backend", "cwd", typeString, `"."`,
			"The directory that the server runs in, relative to the project",
			func(c *Config, v any) error { return setPath(&c.Backend.Cwd, v, false) },
		},
		{
			"backend", "env", typeEnv, `{}`,
			"Environment variables for the server, on top of the daemon's own and those of `env_file`",
			func(c *Config, v any) error { return setEnv(&c.Backend.Env, v) },
		},
		{
			"backend", "env_file", typeString, `""`,
			"A file of `NAME=value` lines for the server's environment, read anew at each start",
			func(c *Config, v any) error { return setPath(&c.Backend.EnvFile, v, true) },
		},
		{
			"backend", "era", oneOf(EraAuto, EraLegacy, EraModern), `"auto"`,
			"Which era of MCP to speak to the server: `legacy` is every version up to 2025-11-25, `modern` is " +
				"2026-07-28, `auto` finds out",
			func(c *Config, v any) error { return setChoice(&c.Backend.Era, v, EraAuto, EraLegacy, EraModern) },
		},
		{
			"backend", "start", oneOf(OnDemand, Eager), `"on-demand"`,
			"When to start the server: with the first request that needs it, or with the daemon",
			func(c *Config, v any) error { return setChoice(&c.Backend.Start, v, OnDemand, Eager) },
		},
		{
			"backend", "start_timeout", typeDuration, `"30s"`,
			"How long a start may take until the handshake has succeeded",
			func(c *Config, v any) error { return setDuration(&c.Backend.StartTimeout, v, positive) },
		},
		{
			"backend", "stop_timeout", typeDuration, `"5s"`,
			"How long to wait on each rung of the stop ladder: standard input closed, SIGTERM, SIGKILL",
			func(c *Config, v any) error { return setDuration(&c.Backend.StopTimeout, v, positive) },
		},
		{
			"backend", "drain_timeout", typeDuration, `"0s"`,
			"How long calls in flight may finish before a restart ends them with an error",
			func(c *Config, v any) error { return setDuration(&c.Backend.DrainTimeout, v, orZero) },
		},
		{
			"backend", "on_crash", oneOf(RestartOnCrash, StayOnCrash), `"restart"`,
			"What follows a crash: a restart with growing pauses, or nothing until the build output changes or " +
				"you restart it",
			func(c *Config, v any) error { return setChoice(&c.Backend.OnCrash, v, RestartOnCrash, StayOnCrash) },
		},
		{
			"build", "command", typeCommand, "",
			"The command that builds your server, run in the project's root. A string is run by the shell, an " +
				"array as it is. Without it there is nothing to rebuild",
			func(c *Config, v any) error { return setScript(&c.Build.Command, v) },
		},
		{
			"build", "watch", typeCommand, "",
			"A command that goes on building whenever a source changes, such as `tsc --watch`, run in the " +
				"project's root from the daemon's start to its end. A string is run by the shell, an array as it " +
				"is. Its output goes to the log; if it ends by itself it is started again with growing pauses",
			func(c *Config, v any) error { return setScript(&c.Build.Watch, v) },
		},
		{
			"build", "timeout", typeDuration, `"2m"`,
			"How long a build may take before it is ended",
			func(c *Config, v any) error { return setDuration(&c.Build.Timeout, v, positive) },
		},
		{
			"watch", "paths", typeStrings, `["dist"]`,
			"Files and directories of build output, relative to the project; a change of their content restarts " +
				"the server. They need not exist yet. `node_modules`, `.git`, `.hg`, `.svn` and `__pycache__` inside " +
				"of them are never looked at. `[]` watches nothing",
			func(c *Config, v any) error { return setPaths(&c.Watch.Paths, v) },
		},
		{
			"watch", "ignore", typeStrings, `["**/*.map"]`,
			"Patterns of what does not count. `**` crosses directories. A pattern is held against the path " +
				"within the project, against the path within the watched directory and, if it has no slash, against " +
				"the name alone",
			func(c *Config, v any) error { return setGlobs(&c.Watch.Ignore, v) },
		},
		{
			"watch", "settle", typeDuration, `"300ms"`,
			"How long nothing may change before a change counts as complete",
			func(c *Config, v any) error { return setDuration(&c.Watch.Settle, v, orZero) },
		},
		{
			"watch", "entry", typeString, `""`,
			"The file without which the server is not started, relative to the project. Default: the first word " +
				"of `command` that lies inside `paths`; if none does, nothing is checked",
			func(c *Config, v any) error { return setPath(&c.Watch.Entry, v, true) },
		},
		{
			"watch", "poll", typeDuration, `"0s"`,
			"How often to look, where the file system sends no events (network mounts, some containers). 0 = rely " +
				"on events",
			func(c *Config, v any) error { return setDuration(&c.Watch.Poll, v, zeroOrPollable) },
		},
		{
			"proxy", "request_wait", typeDuration, `"15s"`,
			"How long a request waits for a start or a restart before it gets an error. Keep it under your " +
				"client's own timeout",
			func(c *Config, v any) error { return setDuration(&c.Proxy.RequestWait, v, orZero) },
		},
		{
			"proxy", "idle_exit", typeDuration, `"30m"`,
			"How long a daemon that a shim started lives on without clients. 0 = for ever. One that you started " +
				"yourself stays",
			func(c *Config, v any) error { return setDuration(&c.Proxy.IdleExit, v, orZero) },
		},
		{
			"proxy", "tool_prefix", typeString, `"dev_"`,
			"What the names of devproxy's own tools begin with. At most 32 of the characters `A-Z a-z 0-9 _ - .`",
			func(c *Config, v any) error { return setToolPrefix(&c.Proxy.ToolPrefix, v) },
		},
		{
			"proxy", "front", oneOf(FrontBoth, FrontLegacy, FrontModern), `"both"`,
			"Which eras of MCP clients are offered",
			func(c *Config, v any) error { return setChoice(&c.Proxy.Front, v, FrontBoth, FrontLegacy, FrontModern) },
		},
		{
			"proxy", "max_message", typeSize, `"10112KiB"`,
			"The largest message that a client gets; a larger result becomes an error for its request. The " +
				"official TypeScript clients drop the connection above 10 MiB. 0 = no limit",
			func(c *Config, v any) error { return setSize(&c.Proxy.MaxMessage, v) },
		},
		{
			"proxy", "max_request", typeSize, `"10112KiB"`,
			"The largest message that a `stdio` server gets; a larger request gets an error. 0 = no limit",
			func(c *Config, v any) error { return setSize(&c.Proxy.MaxRequest, v) },
		},
	}
}

func oneOf[T ~string](choices ...T) string {
	quoted := make([]string, len(choices))
	for i, choice := range choices {
		quoted[i] = fmt.Sprintf("%q", choice)
	}
	return strings.Join(quoted, ", ")
}
