package clients

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// ShimName is the name of the program that clients start in place of a server.
const ShimName = "devproxy-shim"

// Scope is for whom a server is registered.
type Scope string

// The scopes.
const (
	// Project is a file in the project's folder.
	Project Scope = "project"
	// User is a file in the user's home, which holds for all folders.
	User Scope = "user"
)

// Host is the machine and the person that files are looked up for.
type Host struct {
	// OS is runtime.GOOS.
	OS string
	// Home is the home directory.
	Home string
	// Root is the project's folder.
	Root string
	// Getenv gives the value of an environment variable.
	Getenv func(string) string
	// Exists reports whether there is a file or a folder of that path.
	Exists func(string) bool
	// OnPath reports whether there is a program of that name in PATH.
	OnPath func(string) bool
	// ReadDir gives the names in a folder, and ReadFile a file; nothing of what is
	// not there. Without them everything that exists counts as somebody's.
	ReadDir  func(string) []string
	ReadFile func(string) []byte
}

// path is a path below the home directory.
func (h Host) path(parts ...string) string {
	return filepath.Join(append([]string{h.Home}, parts...)...)
}

// Short is an absolute path as a person writes it.
func (h Host) Short(path string) string {
	if rel, err := filepath.Rel(h.Home, path); err == nil && filepath.IsLocal(rel) {
		return filepath.Join("~", rel)
	}
	return path
}

// dir is the folder that a variable names, or otherwise. A relative one would
// be another in each working directory, and no client means that.
func (h Host) dir(variable, otherwise string) string {
	if value := h.Getenv(variable); filepath.IsAbs(value) {
		return value
	}
	return otherwise
}

// xdgConfig is where programs that follow the XDG specification keep their
// configuration.
func (h Host) xdgConfig() string { return h.dir("XDG_CONFIG_HOME", h.path(".config")) }

// appData is where the system wants applications to keep their files.
func (h Host) appData() string {
	switch h.OS {
	case "windows":
		return h.dir("APPDATA", h.path("AppData", "Roaming"))
	case "darwin":
		return h.path("Library", "Application Support")
	}
	return h.xdgConfig()
}

// Entry is a server as a client is told to start it.
type Entry struct {
	Name, Command string
	Args          []string
}

// namePattern is what all clients accept: Codex and Claude Code allow no more.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName reports a name that some client would refuse.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is no name for a server: clients allow letters, digits, - and _", name)
	}
	return nil
}

// NameFor makes a name of a text, such as that of a folder or a package.
func NameFor(text string) string {
	if scope, name, found := strings.Cut(text, "/"); found && strings.HasPrefix(scope, "@") {
		text = name
	}
	name := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(text, "-"), "-")
	if len(name) > 64 {
		name = name[:64]
	}
	if name == "" {
		return "server"
	}
	return name
}

// Shim is the entry that has a client start the shim of a project.
func Shim(name, shim, root string) Entry {
	return Entry{Name: name, Command: shim, Args: []string{"--project", root}}
}

// Server is an entry that a client's file holds.
type Server struct {
	Name string
	// Command and Args start the server; Command is empty for one that has a URL.
	Command string
	Args    []string
	URL     string
	// Type is what the entry says of its transport; often empty.
	Type string
	Env  map[string]string
	Cwd  string
}

// IsShim reports whether the entry starts a shim, and for which project. The
// project is empty if the entry leaves it to the working directory.
func (s Server) IsShim() (root string, ok bool) {
	program := s.Command[strings.LastIndexAny(s.Command, `/\`)+1:]
	if strings.TrimSuffix(strings.ToLower(program), ".exe") != ShimName {
		return "", false
	}
	for i, arg := range s.Args {
		flag, dashed := strings.CutPrefix(arg, "-")
		name, value, given := strings.Cut(strings.TrimPrefix(flag, "-"), "=")
		switch {
		case !dashed || name != "project":
		case given:
			return value, true
		case i+1 < len(s.Args):
			return s.Args[i+1], true
		}
	}
	return "", true
}

// Serves reports whether the entry starts the shim of the project root.
func (s Server) Serves(root string) bool {
	project, ok := s.IsShim()
	// VS Code and its relatives put the folder that is open there.
	if ok && project == "${workspaceFolder}" {
		return true
	}
	return ok && project != "" && filepath.Clean(project) == filepath.Clean(root)
}

// Starts reports whether the entry starts a backend of the project root itself: by
// its command, or with its entry file, which is empty if it has none.
func (s Server) Starts(command []string, entry, root string) bool {
	words := append([]string{s.Command}, s.Args...)
	if slices.Equal(words, command) {
		return true
	}
	return entry != "" && s.Command != "" && slices.ContainsFunc(words, func(word string) bool {
		path := filepath.FromSlash(strings.ReplaceAll(word, "${workspaceFolder}", root))
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		return filepath.Clean(path) == entry
	})
}

// Client is one MCP client.
type Client struct {
	// ID is what a person types.
	ID string
	// Name is what the client calls itself.
	Name string

	project, user location
	// found reports whether the client seems to be installed.
	found func(Host) bool
	form  form
}

// location is where a client keeps its servers for one scope.
type location struct {
	// path is nil where the client has no such scope, and returns "" where it
	// has none on this system.
	path func(Host) string
	// then says what the client needs before it uses a new entry.
	then string
}

// form is how a client writes its servers down.
type form struct {
	toml bool
	// keys lead to the object that holds the servers.
	keys []string
	// alternative is used instead of keys if it is there already.
	alternative []string
	// members are what an entry consists of.
	members func(Entry) []member
}

// All are the clients, in the order in which they are listed.
func All() []Client { return table }

// IDs are what a person may type.
func IDs() []string {
	ids := make([]string, len(table))
	for i, client := range table {
		ids[i] = client.ID
	}
	return ids
}

// Lookup finds a client by its ID.
func Lookup(id string) (Client, error) {
	i := slices.IndexFunc(table, func(c Client) bool { return c.ID == id })
	if i < 0 {
		return Client{}, fmt.Errorf("unknown client %q; there are %s", id, strings.Join(IDs(), ", "))
	}
	return table[i], nil
}

// Installed reports whether the client seems to be installed.
func (c Client) Installed(h Host) bool {
	there := h.Exists
	h.Exists = func(path string) bool { return there(path) && !c.madeByUs(h, path) }
	return c.found(h)
}

// madeByUs reports whether a file or folder is there for no other reason than that
// the shim was registered in it.
func (c Client) madeByUs(h Host, path string) bool {
	file := c.user.path(h)
	if h.ReadDir == nil || h.ReadFile == nil || file == "" {
		return false
	}
	if path == file {
		return c.OnlyShims(h.ReadFile(file))
	}
	below, inside := strings.CutPrefix(file, path+string(filepath.Separator))
	if !inside {
		return false
	}
	next, _, _ := strings.Cut(below, string(filepath.Separator))
	names := h.ReadDir(path)
	for _, name := range names {
		if name != next && !strings.HasPrefix(name, next+".") { // a backup beside it
			return false
		}
	}
	return len(names) > 0 && (!slices.Contains(names, next) || c.madeByUs(h, filepath.Join(path, next)))
}

// Path is the file that the client keeps its servers in, or "" if it has none
// for that scope.
func (c Client) Path(h Host, scope Scope) string {
	at := c.at(scope)
	if at.path == nil {
		return ""
	}
	return at.path(h)
}

// Then says what the client needs before it uses a new entry.
func (c Client) Then(scope Scope) string { return c.at(scope).then }

func (c Client) at(scope Scope) location {
	if scope == User {
		return c.user
	}
	return c.project
}

// Outcome is what Register came to.
type Outcome int

// The outcomes of Register.
const (
	// Already: there is such an entry, and nothing changes.
	Already Outcome = iota
	// Added: there was none.
	Added
	// Updated: the entry started another shim for the same project.
	Updated
	// Replaced: there was another entry of that name, and force was given.
	Replaced
)

// TakenError says that the name is that of another server.
type TakenError struct {
	// Name is the name.
	Name string
	// Server is the entry that has it.
	Server Server
}

// Error names the entry and what it starts.
func (e *TakenError) Error() string {
	what := e.Server.URL
	if what == "" {
		what = strings.Join(append([]string{e.Server.Command}, e.Server.Args...), " ")
	}
	return fmt.Sprintf("there is an entry %q already, which is not ours: %s", e.Name, what)
}

// SyntaxError says that a file is not what its client could read.
type SyntaxError struct {
	// Line counts from 1; 0 if it is not known.
	Line int
	// Msg says what is wrong.
	Msg string
}

// Error gives the line, if it is known, and what is wrong.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Msg
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
}

// errDamaged is a fault of this package.
var errDamaged = errors.New("the edit would have changed something else too and was not made; make it by hand")

// document is a file of servers in one of the formats.
type document interface {
	// servers are the entries in the order of the file.
	servers() ([]Server, error)
	// add puts an entry behind the others. There is none of that name.
	add(Entry) ([]byte, error)
	// remove takes an entry out.
	remove(name string) ([]byte, error)
	// setCommand changes the program of an entry.
	setCommand(name, command string) ([]byte, error)
	// removeEmpty takes out what holds the servers if it is empty, and reports
	// whether it was.
	removeEmpty() ([]byte, bool, error)
	// isEmpty reports a file that says nothing, not even in a comment.
	isEmpty() bool
	// tree is the meaning of the file, and where in it the servers are.
	tree() (root map[string]any, keys []string, err error)
}

func (c Client) open(content []byte) (document, error) {
	if c.form.toml {
		return openTOML(content, c.form)
	}
	return openJSON(content, c.form)
}

// Servers are the entries that a file of the client holds.
func (c Client) Servers(content []byte) ([]Server, error) {
	doc, err := c.open(content)
	if err != nil {
		return nil, err
	}
	return doc.servers()
}

// Register returns the content of a file with the entry in it. Empty content
// stands for a file that does not exist. An entry of the same name that starts
// the shim of the same project is left as it is but for the program; any other
// one is a *TakenError, or is replaced with force. A file that the client could
// not read is a *SyntaxError.
func (c Client) Register(content []byte, e Entry, force bool) ([]byte, Outcome, error) {
	for _, text := range append([]string{e.Command}, e.Args...) {
		if !utf8.ValidString(text) {
			return nil, Already, fmt.Errorf("%q cannot be written down: it is no UTF-8", text)
		}
	}
	doc, err := c.open(content)
	if err != nil {
		return nil, Already, err
	}
	servers, err := doc.servers()
	if err != nil {
		return nil, Already, err
	}
	i := slices.IndexFunc(servers, func(s Server) bool { return s.Name == e.Name })
	if i < 0 {
		changed, err := doc.add(e)
		return c.proven(content, changed, Added, err, e.Name)
	}
	root, _ := Server{Command: e.Command, Args: e.Args}.IsShim()
	switch ours := servers[i].Serves(root); {
	case ours && servers[i].Command == e.Command:
		return content, Already, nil
	case ours:
		changed, err := doc.setCommand(e.Name, e.Command)
		return c.proven(content, changed, Updated, err, e.Name)
	case !force:
		return nil, Already, &TakenError{Name: e.Name, Server: servers[i]}
	}
	without, _, err := c.Unregister(content, []string{e.Name})
	if err != nil {
		return nil, Already, err
	}
	changed, _, err := c.Register(without, e, false)
	return changed, Replaced, err
}

// Unregister returns the content of a file without the entries of those names,
// and which of them it held.
func (c Client) Unregister(content []byte, names []string) (changed []byte, removed []string, err error) {
	changed = content
	for _, name := range names {
		doc, err := c.open(changed)
		if err != nil {
			return nil, nil, err
		}
		servers, err := doc.servers()
		if err != nil {
			return nil, nil, err
		}
		if !slices.ContainsFunc(servers, func(s Server) bool { return s.Name == name }) {
			continue
		}
		without, err := doc.remove(name)
		if without, _, err = c.proven(changed, without, Already, err, name); err != nil {
			return nil, nil, err
		}
		changed, removed = without, append(removed, name)
	}
	return changed, removed, nil
}

// Tidy takes out of a file what held its servers, if none is left, and reports
// whether anything is left at all.
func (c Client) Tidy(content []byte) (tidied []byte, empty bool, err error) {
	for {
		doc, err := c.open(content)
		if err != nil {
			return nil, false, err
		}
		without, removed, err := doc.removeEmpty()
		if err != nil {
			return nil, false, err
		}
		if !removed {
			return content, doc.isEmpty(), nil
		}
		if content, _, err = c.proven(content, without, Already, nil, ""); err != nil {
			return nil, false, err
		}
	}
}

// OnlyShims reports whether a file holds nothing but shims, so that nobody but we
// can have made it: a client writes more than that.
func (c Client) OnlyShims(content []byte) bool {
	servers, err := c.Servers(content)
	if err != nil || len(servers) == 0 {
		return false
	}
	var names []string
	for _, server := range servers {
		if _, ok := server.IsShim(); !ok {
			return false
		}
		names = append(names, server.Name)
	}
	without, _, err := c.Unregister(content, names)
	if err != nil {
		return false
	}
	_, empty, err := c.Tidy(without)
	return err == nil && empty
}

// HoldsServers reports whether a file has a place for servers that others than we
// use: an empty one, or one with another server than a shim.
func (c Client) HoldsServers(content []byte) bool {
	doc, err := c.open(content)
	if err != nil {
		return true // it may have one
	}
	root, keys, err := doc.tree()
	if err != nil {
		return true
	}
	at := root
	for _, key := range keys {
		below, ok := at[key].(map[string]any)
		if !ok {
			return false
		}
		at = below
	}
	servers, err := doc.servers()
	if err != nil || len(servers) == 0 {
		return true
	}
	return slices.ContainsFunc(servers, func(s Server) bool {
		_, ok := s.IsShim()
		return !ok
	})
}

// proven passes a change on if both contents mean the same but for the entry of
// that name.
func (c Client) proven(before, after []byte, outcome Outcome, err error, name string) ([]byte, Outcome, error) {
	if err != nil {
		return nil, Already, err
	}
	was, err := c.meaning(before, name)
	if err != nil {
		return nil, Already, err
	}
	is, err := c.meaning(after, name)
	if err != nil || !equal(was, is) {
		return nil, Already, errDamaged
	}
	return after, outcome, nil
}

// meaning is what a file says without the entry of that name. That the object of
// the servers is missing means the same as an empty one.
func (c Client) meaning(content []byte, without string) (map[string]any, error) {
	doc, err := c.open(content)
	if err != nil {
		return nil, err
	}
	root, keys, err := doc.tree()
	if err != nil {
		return nil, err
	}
	drop(root, append(slices.Clone(keys), without))
	return root, nil
}

// drop deletes the value that keys lead to, and then what is empty on the way.
func drop(tree map[string]any, keys []string) {
	if len(keys) == 1 {
		delete(tree, keys[0])
		return
	}
	below, ok := tree[keys[0]].(map[string]any)
	if !ok {
		return
	}
	drop(below, keys[1:])
	if len(below) == 0 {
		delete(tree, keys[0])
	}
}

// Snippet is what a person would write into an empty file of the client.
func (c Client) Snippet(e Entry) (string, error) {
	content, _, err := c.Register(nil, e, false)
	return string(content), err
}
