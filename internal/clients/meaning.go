package clients

import (
	"math"
	"time"
)

// equal reports whether two decoded documents mean the same. Unlike
// reflect.DeepEqual it finds a NaN equal to another, and an instant to itself
// read twice.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			if other, found := b[key]; !found || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i, value := range a {
			if !equal(value, b[i]) {
				return false
			}
		}
		return true
	case time.Time:
		b, ok := b.(time.Time)
		return ok && a.Equal(b)
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || math.IsNaN(a) && math.IsNaN(b))
	}
	return a == b
}

// serverOf reads the entry of a server, whatever a client calls its parts.
func serverOf(name string, entry map[string]any) Server {
	s := Server{Name: name}
	switch command := entry["command"].(type) {
	case string:
		s.Command = command
	case []any: // of opencode, with the arguments
		if words := stringsOf(command); len(words) > 0 {
			s.Command, s.Args = words[0], words[1:]
		}
	}
	if args, ok := entry["args"].([]any); ok {
		s.Args = stringsOf(args)
	}
	for _, key := range []string{"url", "serverUrl", "httpUrl"} {
		if url, ok := entry[key].(string); ok {
			s.URL = url
		}
	}
	for _, key := range []string{"type", "transport"} {
		if kind, ok := entry[key].(string); ok {
			s.Type = kind
		}
	}
	s.Cwd, _ = entry["cwd"].(string)
	for _, key := range []string{"env", "environment"} {
		env, ok := entry[key].(map[string]any)
		if !ok {
			continue
		}
		s.Env = map[string]string{}
		for name, value := range env {
			if text, ok := value.(string); ok {
				s.Env[name] = text
			}
		}
	}
	return s
}

func stringsOf(values []any) []string {
	var texts []string
	for _, value := range values {
		if text, ok := value.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}
