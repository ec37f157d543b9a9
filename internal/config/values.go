package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// expected is the error for a value of the wrong type.
func expected(what string, got any) error {
	return fmt.Errorf("must be %s, not %s", what, describe(got))
}

func describe(value any) string {
	switch value := value.(type) {
	case string:
		return "a string"
	case int64:
		return fmt.Sprintf("the number %d", value)
	case float64:
		return "a number with a fraction"
	case bool:
		return fmt.Sprintf("the boolean %t", value)
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	default:
		return "a date or time"
	}
}

func setString(to *string, v any) error {
	text, ok := v.(string)
	if !ok {
		return expected("a string", v)
	}
	if strings.ContainsRune(text, 0) {
		return errors.New("must not contain a NUL character")
	}
	*to = text
	return nil
}

func setChoice[T ~string](to *T, v any, choices ...T) error {
	text, ok := v.(string)
	if !ok {
		return expected("one of "+oneOf(choices...), v)
	}
	if !slices.Contains(choices, T(text)) {
		return fmt.Errorf("%q is not one of %s", text, oneOf(choices...))
	}
	*to = T(text)
	return nil
}

func setInt(to *int, v any, lowest, highest int64) error {
	n, ok := v.(int64)
	if !ok {
		return expected("a whole number", v)
	}
	if n < lowest || n > highest {
		return fmt.Errorf("%d is not between %d and %d", n, lowest, highest)
	}
	*to = int(n)
	return nil
}

// The ranges of durations.
func positive(d time.Duration) error {
	if d <= 0 {
		return errors.New("must be longer than 0s")
	}
	return nil
}

func orZero(d time.Duration) error {
	if d < 0 {
		return errors.New("must not be negative")
	}
	return nil
}

// minPoll keeps a slip of the unit from keeping a processor busy.
const minPoll = 100 * time.Millisecond

func zeroOrPollable(d time.Duration) error {
	if d != 0 && d < minPoll {
		return fmt.Errorf("must be 0s or at least %v", minPoll)
	}
	return nil
}

func setDuration(to *time.Duration, v any, check func(time.Duration) error) error {
	text, ok := v.(string)
	if !ok {
		return expected(`a duration in quotes such as "300ms" or "15s"`, v)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf(`%q is no duration; write it like "300ms", "15s" or "2m"`, text)
	}
	if err := check(d); err != nil {
		return err
	}
	*to = d
	return nil
}

// The bounds of sizes: in less than minSize not even an error fits, and more
// than maxSize is no number of bytes on every machine.
const (
	minSize = 1 << 10
	maxSize = math.MaxInt32
)

func setSize(to *int, v any) error {
	n, err := parseSize(v)
	if err != nil {
		return err
	}
	if n != 0 && (n < minSize || n > maxSize) {
		return fmt.Errorf("must be 0 (no limit) or between %d and %d bytes", minSize, maxSize)
	}
	*to = int(n)
	return nil
}

func parseSize(v any) (int64, error) {
	if n, ok := v.(int64); ok {
		return n, nil
	}
	text, ok := v.(string)
	if !ok {
		return 0, expected(`a size such as "10MiB" or a number of bytes`, v)
	}
	bad := fmt.Errorf(`%q is no size; write it like "10112KiB", "10MiB" or 1048576`, text)
	digits := strings.TrimRight(text, "BKMGbkmgi ")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, bad
	}
	unit, ok := sizeUnit(strings.TrimSpace(text[len(digits):]))
	if !ok {
		return 0, bad
	}
	if n > math.MaxInt64/unit {
		return math.MaxInt64, nil
	}
	return n * unit, nil
}

func sizeUnit(name string) (bytes int64, ok bool) {
	switch strings.ToLower(name) {
	case "", "b":
		return 1, true
	case "kb":
		return 1e3, true
	case "mb":
		return 1e6, true
	case "gb":
		return 1e9, true
	case "kib":
		return 1 << 10, true
	case "mib":
		return 1 << 20, true
	case "gib":
		return 1 << 30, true
	}
	return 0, false
}

func setURLPath(to *string, v any, mayBeEmpty bool) error {
	var text string
	if err := setString(&text, v); err != nil {
		return err
	}
	if text == "" && mayBeEmpty {
		*to = text
		return nil
	}
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return fmt.Errorf(`%q must be a path that starts with one slash, such as "/mcp"`, text)
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || u.Host != "" || strings.ContainsAny(text, "# ") {
		return fmt.Errorf("%q cannot stand in a URL", text)
	}
	*to = text
	return nil
}

func setPath(to *string, v any, mayBeEmpty bool) error {
	var text string
	if err := setString(&text, v); err != nil {
		return err
	}
	if err := checkPath(text, mayBeEmpty); err != nil {
		return err
	}
	*to = text
	return nil
}

func checkPath(path string, mayBeEmpty bool) error {
	if path == "" && !mayBeEmpty {
		return errors.New("must not be empty")
	}
	if path == "~" || strings.HasPrefix(path, "~/") {
		return fmt.Errorf("%q: ~ is not expanded; write the path from the project's root or from /", path)
	}
	return nil
}

// stringsOf gives the elements of an array of strings.
func stringsOf(v any) ([]string, error) {
	elements, ok := v.([]any)
	if !ok {
		return nil, expected("an array of strings", v)
	}
	texts := make([]string, len(elements))
	for i, element := range elements {
		if err := setString(&texts[i], element); err != nil {
			return nil, &partError{part: fmt.Sprintf("[%d]", i), msg: err.Error()}
		}
	}
	return texts, nil
}

func setPaths(to *[]string, v any) error {
	return setStrings(to, v, func(path string) error { return checkPath(path, false) })
}

func setGlobs(to *[]string, v any) error {
	return setStrings(to, v, func(pattern string) error {
		if pattern == "" || !doublestar.ValidatePattern(filepath.ToSlash(pattern)) {
			return fmt.Errorf("%q is no valid pattern", pattern)
		}
		return nil
	})
}

func setStrings(to *[]string, v any, check func(string) error) error {
	texts, err := stringsOf(v)
	if err != nil {
		return err
	}
	for i, text := range texts {
		if err := check(text); err != nil {
			return &partError{part: fmt.Sprintf("[%d]", i), msg: err.Error()}
		}
	}
	*to = texts
	return nil
}

func setEnv(to *map[string]string, v any) error {
	table, ok := v.(map[string]any)
	if !ok {
		return expected(`a table such as { LOG_LEVEL = "debug" }`, v)
	}
	env := make(map[string]string, len(table))
	for name, value := range table {
		if name == "" || strings.ContainsAny(name, "=\x00 ") {
			return &partError{part: "." + name, msg: "is no name for an environment variable"}
		}
		text, ok := value.(string)
		if !ok {
			return &partError{part: "." + name, msg: "must be a string: put the value in quotes"}
		}
		if strings.ContainsRune(text, 0) {
			return &partError{part: "." + name, msg: "must not contain a NUL character"}
		}
		env[name] = text
	}
	*to = env
	return nil
}

func setToolPrefix(to *string, v any) error {
	var text string
	if err := setString(&text, v); err != nil {
		return err
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_.-]{0,32}$`).MatchString(text) {
		return fmt.Errorf("%q: tool names consist of letters, digits, _, - and ., and a prefix has 32 at most", text)
	}
	*to = text
	return nil
}

func setScript(to *Command, v any) error {
	if script, ok := v.(string); ok {
		if strings.TrimSpace(script) == "" {
			return errors.New("must not be empty; leave the key out if there is nothing to run")
		}
		to.Argv = nil
		return setString(&to.Script, v)
	}
	var argv []string
	if err := setArgv(&argv, v); err != nil {
		return err
	}
	to.Argv, to.Script = argv, ""
	return nil
}

// setArgv takes a command that is given as an array.
func setArgv(to *[]string, v any) error {
	if _, ok := v.([]any); !ok {
		return expected("a string or an array of strings", v)
	}
	argv, err := stringsOf(v)
	if err != nil {
		return err
	}
	return takeArgv(to, argv)
}

func takeArgv(to *[]string, argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("must name a program")
	}
	*to = argv
	return nil
}
