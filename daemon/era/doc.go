// Package era translates between the two eras of MCP: the legacy one, up to 2025-11-25, with its initialize
// handshake and requests in both directions, and the modern one, 2026-07-28, which is stateless.
//
// There is one codec per era and side: a [Front] speaks to clients, a [Back] to backends. They meet in a neutral
// form ([Request], [Result], [Input], [Facts], [Filter]) that keeps foreign JSON as it was sent, so that a third
// era is a third pair of codecs. [Classify] finds out in which era a message speaks. Who routes messages asks
// the two codecs at hand and never compares eras to know a shape:
//
//	client ─ Classify ─ Request ─ Back.Request ─► backend
//	client ◄─ Front.Result ──── Result ─ Back.Result ─ backend
//
// What is rewritten where the eras differ, and nothing else:
//
//	params of a request      to modern: the envelope in _meta is added, the legacy "task" dropped
//	                         to legacy: the envelope is dropped, and inputResponses and requestState
//	progress token           ours instead of the client's, on the way back the client's again
//	result                   to modern: resultType, ttlMs, cacheScope, serverInfo in _meta, content [] for none
//	                         to legacy: those but content are dropped; an outputSchema or structuredContent
//	                         that is no object is wrapped into one
//	change notification      to modern: the listen it belongs to is named in _meta; to legacy: it is not
//	error                    -32002, -32020, -32021, -32022 and -32042 where the other era gives them no meaning
//	handshake                answered from Facts, whatever the era of the backend
//	tasks                    shown within an era only
//	input_required           becomes requests to a legacy client (Front.Ask, Back.Retry)
//	requests of a backend    become input_required to a modern client (Front.InputRequired)
//
// Within one era params and results pass as the bytes they are, but for progress tokens and for the ttlMs of
// lists, which is always 0: what is under development changes sooner than a cache believes.
//
// The package is pure: it has no state, starts nothing, and does no I/O; its values may be used concurrently as
// long as nobody writes to the same [Shapes]. It trusts that raw JSON given to it is valid, as it is after
// wire.Parse. It does not check that a message satisfies the schema of its era: what a peer gets wrong,
// its partner gets to see as on a direct connection.
package era
