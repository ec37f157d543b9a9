package era

import "slices"

// Era is a family of protocol versions that share a handshake and the shape of their messages.
type Era uint8

// The eras. None is "not known", as before a first handshake.
const (
	None   Era = iota
	Legacy     // up to 2025-11-25: initialize, sessions, requests in both directions
	Modern     // 2026-07-28: stateless, server/discover, subscriptions/listen, input_required
)

func (e Era) String() string {
	switch e {
	case Legacy:
		return "legacy"
	case Modern:
		return "modern"
	default:
		return "none"
	}
}

const (
	// ModernVersion is the one version of the modern era.
	ModernVersion = "2026-07-28"
	// LegacyVersion is the newest version of the legacy era, offered where there is a choice.
	LegacyVersion = "2025-11-25"
)

// Keys of _meta that the modern era defines. The first four are the envelope of every modern request.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"    // of a request, required
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities" // of a request, required
	MetaInfo         = "io.modelcontextprotocol/clientInfo"         // of a request
	MetaLevel        = "io.modelcontextprotocol/logLevel"           // of a request
	MetaServerInfo   = "io.modelcontextprotocol/serverInfo"         // of a result
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"     // of a notification and of the result of a listen
)

// TasksExtension names the tasks extension among the extensions of the modern era (SEP-2663). Its shapes differ
// from the legacy tasks, so that neither is shown across eras.
const TasksExtension = "io.modelcontextprotocol/tasks"

// Error codes of MCP.
const (
	CodeResourceNotFound   = -32002 // legacy; modern servers say invalid params
	CodeHeaderMismatch     = -32020 // modern, HTTP
	CodeMissingCapability  = -32021 // modern: data.requiredCapabilities
	CodeUnsupportedVersion = -32022 // modern: data.supported, data.requested
	CodeURLElicitation     = -32042 // 2025-11-25: data.elicitations
)

// LegacyVersions returns the versions of the legacy era that are spoken here, newest first.
func LegacyVersions() []string {
	return []string{LegacyVersion, "2025-06-18", "2025-03-26", "2024-11-05"}
}

// Of returns the era a version belongs to, and whether exactly that version is spoken here. A string that is no
// version, which in MCP is a date, belongs to None.
func Of(version string) (e Era, spoken bool) {
	switch {
	case !isDate(version):
		return None, false
	case version >= ModernVersion: // dates compare as strings
		return Modern, version == ModernVersion
	default:
		return Legacy, slices.Contains(LegacyVersions(), version)
	}
}

func isDate(s string) bool {
	if len(s) != len("2006-01-02") {
		return false
	}
	for i, c := range []byte(s) {
		if dash := i == 4 || i == 7; dash != (c == '-') || !dash && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Negotiate returns the version to answer an initialize with that asks for another, as all three SDK servers
// do: the same if it is spoken, else the newest legacy one. It never is a modern one, which both TypeScript
// clients refuse here.
func Negotiate(asked string) string {
	if e, spoken := Of(asked); e == Legacy && spoken {
		return asked
	}
	return LegacyVersion
}

// Mutual returns the newest of versions that is spoken here and belongs to e.
func Mutual(versions []string, e Era) (version string, ok bool) {
	for _, v := range versions {
		if of, spoken := Of(v); of == e && spoken && v > version {
			version = v
		}
	}
	return version, version != ""
}

// Batches reports whether a version allows JSON-RPC batches.
func Batches(version string) bool { return isDate(version) && version < "2025-06-18" }

// Offer is the eras that clients may speak, the setting front of [proxy].
type Offer uint8

// The offers.
const (
	Both Offer = iota
	LegacyOnly
	ModernOnly
)

// Versions returns the versions offered, newest first.
func (o Offer) Versions() []string {
	switch o {
	case LegacyOnly:
		return LegacyVersions()
	case ModernOnly:
		return []string{ModernVersion}
	default:
		return append([]string{ModernVersion}, LegacyVersions()...)
	}
}
