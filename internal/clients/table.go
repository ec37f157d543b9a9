package clients

import (
	"path/filepath"
	"slices"
)

// The shapes of an entry.

// plain is what most clients share.
func plain(e Entry) []member { return []member{{"command", e.Command}, {"args", e.Args}} }

// typed says the transport too, which plain leaves to the client.
func typed(e Entry) []member { return append([]member{{"type", "stdio"}}, plain(e)...) }

func mcpServers(members func(Entry) []member) form {
	return form{keys: []string{"mcpServers"}, members: members}
}

// inProject is a file in the project's folder.
func inProject(then string, parts ...string) location {
	return location{
		path: func(h Host) string { return filepath.Join(append([]string{h.Root}, parts...)...) },
		then: then,
	}
}

func inHome(then string, path func(Host) string) location { return location{path: path, then: then} }

// seen reports whether a client left one of these paths, or has one of these
// programs in PATH.
func seen(paths func(Host) []string, programs ...string) func(Host) bool {
	return func(h Host) bool {
		return slices.ContainsFunc(programs, h.OnPath) || slices.ContainsFunc(paths(h), h.Exists)
	}
}

const (
	restartIt   = "Restart it."
	trustFolder = "It reads this file only in a folder that you trust."
)

// table has a row for each client, with where its facts come from. The pages
// were read in November 2026.
var table = []Client{
	// https://code.claude.com/docs/en/mcp: project scope is .mcp.json in the
	// project's root, whose servers wait for an approval; user scope is mcpServers
	// of ~/.claude.json. https://code.claude.com/docs/en/env-vars: CLAUDE_CONFIG_DIR.
	{
		ID: "claude-code", Name: "Claude Code", form: mcpServers(typed),
		project: inProject("Start it anew in the project and approve the server when it asks; /mcp shows it.", ".mcp.json"),
		user: inHome("Start it anew; /mcp shows the server.", func(h Host) string {
			return filepath.Join(h.dir("CLAUDE_CONFIG_DIR", h.Home), ".claude.json")
		}),
		found: seen(func(h Host) []string {
			return []string{h.path(".claude.json"), h.dir("CLAUDE_CONFIG_DIR", h.path(".claude"))}
		}, "claude"),
	},
	// https://modelcontextprotocol.io/docs/develop/connect-local-servers: macOS and
	// Windows alone.
	{
		ID: "claude-desktop", Name: "Claude Desktop", form: mcpServers(plain),
		user: inHome("Quit it completely and start it again.", func(h Host) string {
			if h.OS != "darwin" && h.OS != "windows" {
				return ""
			}
			return filepath.Join(h.appData(), "Claude", "claude_desktop_config.json")
		}),
		found: seen(func(h Host) []string {
			if h.OS != "darwin" && h.OS != "windows" {
				return nil
			}
			return []string{filepath.Join(h.appData(), "Claude")}
		}),
	},
	// https://developers.openai.com/codex/mcp and
	// https://developers.openai.com/codex/config-basic: CODEX_HOME/config.toml, which
	// the terminal, the editors and the desktop share, and .codex/config.toml of a
	// project that is trusted.
	{
		ID: "codex", Name: "Codex",
		form:    form{toml: true, keys: []string{"mcp_servers"}, members: plain},
		project: inProject(trustFolder+" Restart it; /mcp shows the server.", ".codex", "config.toml"),
		user:    inHome("Restart it; /mcp shows the server.", func(h Host) string { return filepath.Join(codexHome(h), "config.toml") }),
		found:   seen(func(h Host) []string { return []string{codexHome(h)} }, "codex"),
	},
	// https://cursor.com/docs/mcp: .cursor/mcp.json and ~/.cursor/mcp.json; a stdio
	// server has the type "stdio".
	{
		ID: "cursor", Name: "Cursor", form: mcpServers(typed),
		project: inProject("Enable the server in its settings, under MCP.", ".cursor", "mcp.json"),
		user:    inHome("Enable the server in its settings, under MCP.", func(h Host) string { return h.path(".cursor", "mcp.json") }),
		found:   seen(func(h Host) []string { return []string{h.path(".cursor")} }, "cursor"),
	},
	// https://code.visualstudio.com/docs/agents/reference/mcp-configuration:
	// .vscode/mcp.json, or mcp.json in the user's profile, which is where settings.json
	// is: https://code.visualstudio.com/docs/configure/settings. Other profiles than
	// the default one have folders of their own.
	{
		ID: "vscode", Name: "VS Code",
		form:    form{keys: []string{"servers"}, members: typed},
		project: inProject("Press Start above the entry in this file, and confirm that you trust the server.", ".vscode", "mcp.json"),
		user: inHome("Run \"MCP: List Servers\", start the server, and confirm that you trust it.", func(h Host) string {
			return filepath.Join(h.appData(), "Code", "User", "mcp.json")
		}),
		found: seen(func(h Host) []string { return []string{filepath.Join(h.appData(), "Code")} }, "code"),
	},
	// https://geminicli.com/docs/tools/mcp-server/: mcpServers of
	// .gemini/settings.json and ~/.gemini/settings.json.
	// https://geminicli.com/docs/reference/configuration/: GEMINI_CLI_HOME.
	{
		ID: "gemini", Name: "Gemini CLI", form: mcpServers(plain),
		project: inProject(trustFolder+" Restart it; /mcp shows the server.", ".gemini", "settings.json"),
		user:    inHome("Restart it; /mcp shows the server.", func(h Host) string { return filepath.Join(geminiHome(h), "settings.json") }),
		found:   seen(func(h Host) []string { return []string{geminiHome(h)} }, "gemini"),
	},
	// https://docs.windsurf.com/windsurf/cascade/mcp
	{
		ID: "windsurf", Name: "Windsurf (Cascade)", form: mcpServers(plain),
		user: inHome("Press the refresh button of its MCP panel.", func(h Host) string {
			return h.path(".codeium", "windsurf", "mcp_config.json")
		}),
		found: seen(func(h Host) []string { return []string{h.path(".codeium", "windsurf")} }, "windsurf"),
	},
	// https://docs.devin.ai/cli/extensibility/mcp/configuration and
	// https://docs.devin.ai/cli/reference/configuration/config-file:
	// .devin/config.local.json is the one that is not shared.
	{
		ID: "devin", Name: "Devin CLI", form: mcpServers(plain),
		project: inProject(restartIt, ".devin", "config.local.json"),
		user:    inHome(restartIt, func(h Host) string { return filepath.Join(devinHome(h), "config.json") }),
		found:   seen(func(h Host) []string { return []string{devinHome(h)} }, "devin"),
	},
	// https://zed.dev/docs/ai/mcp and https://zed.dev/docs/configuring-zed; the
	// folder on Windows and that a project may have the setting are from Zed's
	// sources, crates/paths/src/paths.rs and crates/settings_content/src/project.rs of
	// https://github.com/zed-industries/zed.
	{
		ID: "zed", Name: "Zed",
		form:    form{keys: []string{"context_servers"}, members: plain},
		project: inProject("The Agent Panel's settings show the server.", ".zed", "settings.json"),
		user:    inHome("The Agent Panel's settings show the server.", func(h Host) string { return filepath.Join(zedHome(h), "settings.json") }),
		found:   seen(func(h Host) []string { return []string{zedHome(h)} }, "zed", "zeditor"),
	},
	// https://docs.cline.bot/mcp/adding-and-configuring-servers for the format,
	// https://docs.cline.bot/getting-started/config for the place, which the extension
	// and the terminal share.
	{
		ID: "cline", Name: "Cline", form: mcpServers(plain),
		user: inHome("Its MCP Servers panel shows the server.", func(h Host) string {
			return h.dir("CLINE_MCP_SETTINGS_PATH", h.path(".cline", "data", "settings", "cline_mcp_settings.json"))
		}),
		found: seen(func(h Host) []string { return []string{h.path(".cline")} }, "cline"),
	},
	// https://opencode.ai/docs/config/ for the places and
	// https://opencode.ai/docs/mcp-servers/ for the format. Version 2 wants the servers
	// in mcp.servers, and reads those in mcp as before:
	// https://opencode.ai/docs/migrate-v1/. So they go where others are.
	{
		ID: "opencode", Name: "opencode",
		form: form{
			keys: []string{"mcp"}, alternative: []string{"mcp", "servers"},
			members: func(e Entry) []member {
				return []member{{"type", "local"}, {"command", append([]string{e.Command}, e.Args...)}}
			},
		},
		project: location{path: func(h Host) string { return opencodeFile(h, h.Root) }, then: restartIt},
		user:    inHome(restartIt, func(h Host) string { return opencodeFile(h, opencodeHome(h)) }),
		found:   seen(func(h Host) []string { return []string{opencodeHome(h)} }, "opencode"),
	},
	// https://kiro.dev/docs/mcp/configuration/
	{
		ID: "kiro", Name: "Kiro", form: mcpServers(plain),
		project: inProject("Its MCP panel shows the server.", ".kiro", "settings", "mcp.json"),
		user:    inHome("Its MCP panel shows the server.", func(h Host) string { return h.path(".kiro", "settings", "mcp.json") }),
		found:   seen(func(h Host) []string { return []string{h.path(".kiro")} }, "kiro", "kiro-cli"),
	},
	// https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers:
	// .mcp.json in the project's root, which Claude Code reads too, is for the single
	// checkout; .github/mcp.json is for everybody.
	{
		ID: "copilot", Name: "GitHub Copilot CLI", form: mcpServers(func(e Entry) []member {
			return append(typed(e), member{"tools", []string{"*"}})
		}),
		project: inProject(trustFolder+" /mcp show lists the server.", ".mcp.json"),
		user:    inHome("/mcp show lists the server.", func(h Host) string { return filepath.Join(copilotHome(h), "mcp-config.json") }),
		found:   seen(func(h Host) []string { return []string{copilotHome(h)} }, "copilot"),
	},
}

func codexHome(h Host) string { return h.dir("CODEX_HOME", h.path(".codex")) }

func geminiHome(h Host) string { return filepath.Join(h.dir("GEMINI_CLI_HOME", h.Home), ".gemini") }

func copilotHome(h Host) string { return h.dir("COPILOT_HOME", h.path(".copilot")) }

func devinHome(h Host) string {
	if h.OS == "windows" {
		return filepath.Join(h.appData(), "devin")
	}
	return h.path(".config", "devin")
}

func zedHome(h Host) string {
	switch h.OS {
	case "windows":
		return filepath.Join(h.appData(), "Zed")
	case "darwin":
		return h.path(".config", "zed")
	}
	return filepath.Join(h.xdgConfig(), "zed")
}

func opencodeHome(h Host) string { return h.path(".config", "opencode") }

// opencodeFile is the one of its two names that is in use.
func opencodeFile(h Host, dir string) string {
	if path := filepath.Join(dir, "opencode.jsonc"); h.Exists(path) {
		return path
	}
	return filepath.Join(dir, "opencode.json")
}
