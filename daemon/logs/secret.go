package logs

import (
	"slices"
	"strings"
	"unicode"
)

// secretName reports whether a variable, option or field of that name holds
// something to be hidden.
func secretName(name string) bool {
	words := words(name)
	if len(words) == 0 || name == "PWD" || name == "OLDPWD" {
		return false
	}
	switch words[len(words)-1] {
	case "path", "file", "dir", "directory", "sock", "socket", "url", "uri", "host", "port", "name",
		"type", "mode", "limit", "count", "ttl", "timeout", "expiry", "size", "length", "enabled", "method":
		return false // where or how, not the secret itself
	}
	return slices.ContainsFunc(words, secretWord)
}

func secretWord(word string) bool {
	word = strings.TrimSuffix(word, "s")
	switch word {
	case "auth", "authorization", "cookie", "credential", "cred", "pwd", "pas", "pat", "jwt", "bearer", "otp":
		return true
	}
	for _, ending := range []string{"token", "secret", "password", "passwd", "passphrase", "passcode", "key"} {
		if strings.HasSuffix(word, ending) {
			return true
		}
	}
	return false
}

// words splits apiKey, API_KEY and --api-key alike.
func words(name string) []string {
	var all []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			all = append(all, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	lower := false
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			lower = false
			continue
		}
		if unicode.IsUpper(r) && lower {
			flush()
		}
		lower = unicode.IsLower(r)
		word.WriteRune(r)
	}
	flush()
	return all
}

// minSecret is the length from which a value is hidden wherever it occurs:
// shorter ones are parts of ordinary words.
const minSecret = 4

// secretValue reports whether a value can be told from ordinary text. What is
// no secret although its variable's name looks like one would otherwise blot out
// every "true" and "4096" in the log.
func secretValue(value string) bool {
	if len(value) < minSecret {
		return false
	}
	switch strings.ToLower(value) {
	case "true", "false", "none", "null", "undefined", "auto", "default", "basic", "bearer", "oauth", "oauth2",
		"enabled", "disabled", "required", "optional", "test", "local", "localhost", "development", "production",
		"admin", "root", "user", "password", "secret", "token":
		return false
	}
	const longestCount = 8 // digits; a longer number is hardly a setting
	isDigit := func(r rune) bool { return r >= '0' && r <= '9' }
	return len(value) > longestCount || strings.TrimFunc(value, isDigit) != ""
}
