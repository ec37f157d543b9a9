package logs

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hidden stands in the place of a secret.
const hidden = "***"

// Masker hides secrets. It does not change once it is made; a nil one knows the
// usual forms of credentials only.
type Masker struct {
	values *strings.Replacer // nil if there are none
}

// NewMasker makes a masker of the values of all variables whose names look like
// those of secrets.
func NewMasker(envs ...map[string]string) *Masker {
	secrets := map[string]bool{}
	for _, env := range envs {
		for name, value := range env {
			if secretName(name) {
				addForms(secrets, value)
			}
		}
	}
	if len(secrets) == 0 {
		return &Masker{}
	}
	// The first that matches wins, and a secret may begin with another.
	ordered := slices.SortedFunc(maps.Keys(secrets), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	pairs := make([]string, 0, 2*len(ordered))
	for _, secret := range ordered {
		pairs = append(pairs, secret, hidden)
	}
	return &Masker{values: strings.NewReplacer(pairs...)}
}

// addForms adds a value as it may stand in a line: itself, within JSON or a
// quoted string, within a URL, in base64 as credentials are sent, and each line
// of a value with several, such as a private key.
func addForms(secrets map[string]bool, value string) {
	value = strings.TrimSpace(value)
	if !secretValue(value) {
		return
	}
	secrets[value] = true
	secrets[url.QueryEscape(value)] = true
	secrets[url.PathEscape(value)] = true
	secrets[unquoted(strconv.Quote(value))] = true
	secrets[unquoted(string(quoteJSON(value)))] = true
	if quoted, err := json.Marshal(value); err == nil {
		secrets[unquoted(string(quoted))] = true
	}
	// Without its end, which depends on what follows the value.
	secrets[base64.RawStdEncoding.EncodeToString([]byte(value))] = true
	secrets[base64.RawURLEncoding.EncodeToString([]byte(value))] = true
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); secretValue(line) && !strings.HasPrefix(line, "-----") {
			secrets[line] = true
		}
	}
}

func unquoted(text string) string { return text[1 : len(text)-1] }

// form is one way in which credentials are written.
type form struct {
	// hints are what a text in lower case has one of if it may have the form.
	// They spare ordinary lines the pattern, which takes a hundred times longer.
	hints   []string
	pattern *regexp.Regexp
	// replacement is for ReplaceAll; empty for a form with a name and a value,
	// of which the name decides.
	replacement string
}

// quoted is a value in quotes of either kind, which it may hold escaped.
const quoted = `"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`

var secretHints = []string{"token", "secret", "pass", "key", "cred", "cookie", "pwd", "auth", "_pat", "-pat", "jwt", "bearer", "otp"}

var forms = []form{
	{ // tokens that can be told by themselves
		[]string{
			"sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "xox", "akia", "asia", "aiza", "eyj",
		},
		regexp.MustCompile(`\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|` +
			`glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|xox[abeprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|` +
			`eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)`),
		hidden,
	},
	{ // the header with whatever scheme
		[]string{"authorization"},
		regexp.MustCompile(`(?i)\b(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|digest|negotiate|token)\s+)?)[^\s"',]{3,}`),
		"${1}" + hidden,
	},
	{ // the scheme without the header
		[]string{"bearer"},
		regexp.MustCompile(`(?i)\b(bearer)\s+[\w.~+/=-]{8,}`),
		"${1} " + hidden,
	},
	{ // a password within a URL
		[]string{"://"},
		regexp.MustCompile(`(://[^\s/:@]*:)[^\s/@]+@`),
		"${1}" + hidden + "@",
	},
	{ // a value with its name: --api-key=x, API_KEY: "x", "apiKey":"x"
		secretHints,
		regexp.MustCompile(`([\w.-]*\w)(["']?\s*[=:]\s*)(` + quoted + `|[^\s"',;&]+)`),
		"",
	},
	{ // an option with its value in the next word
		secretHints,
		regexp.MustCompile(`(--[\w.-]+\w)(\s+)(` + quoted + `|[^\s"'-][^\s"']*)`),
		"",
	},
}

// Mask hides the secrets in a text.
func (m *Masker) Mask(text string) string {
	if m != nil && m.values != nil {
		text = m.values.Replace(text)
	}
	lower := strings.ToLower(text)
	for _, form := range forms {
		if !slices.ContainsFunc(form.hints, func(hint string) bool { return strings.Contains(lower, hint) }) {
			continue
		}
		if form.replacement == "" {
			text = maskNamed(form.pattern, text)
		} else {
			text = form.pattern.ReplaceAllString(text, form.replacement)
		}
	}
	return text
}

// maskNamed hides the values of secret names, also within those of others. In
// running text a plain "key" or "auth" is a word like any other, and so is a value
// that is none.
func maskNamed(form *regexp.Regexp, text string) string {
	matches := form.FindAllStringSubmatchIndex(text, -1)
	if len(matches) == 0 {
		return text
	}
	var b strings.Builder
	done := 0
	for _, at := range matches {
		name, value := text[at[2]:at[3]], text[at[6]:at[7]]
		quote := ""
		if value[0] == '"' || value[0] == '\'' {
			quote = value[:1]
			value = value[1 : len(value)-1]
		}
		masked := hidden
		if !secretInText(name) {
			// The value may have a name of its own: --env=API_KEY=x
			masked = maskNamed(form, value)
		} else if !secretValue(value) {
			masked = value
		}
		if masked == value {
			continue
		}
		b.WriteString(text[done:at[6]])
		b.WriteString(quote + masked + quote)
		done = at[7]
	}
	b.WriteString(text[done:])
	return b.String()
}

func secretInText(name string) bool {
	if !secretName(name) {
		return false
	}
	switch all := words(name); all[len(all)-1] {
	case "key", "keys":
		return len(all) > 1
	case "tokens", "auth", "authorization":
		return false // counts and settings, mostly; and the header has its own form
	}
	return true
}

// MaskEnv gives a copy of the variables with secret values hidden; nil for nil.
func (m *Masker) MaskEnv(env map[string]string) map[string]string {
	if env == nil {
		return nil
	}
	masked := make(map[string]string, len(env))
	for name, value := range env {
		if secretName(name) && value != "" {
			masked[name] = hidden
		} else {
			masked[name] = m.Mask(value)
		}
	}
	return masked
}

// MaskArgs gives a copy of a command line with secrets hidden, in words of
// their own and after an option's name.
func (m *Masker) MaskArgs(args []string) []string {
	if args == nil {
		return nil
	}
	masked := make([]string, len(args))
	for i, arg := range args {
		if i > 0 && isSecretOption(args[i-1]) && !strings.HasPrefix(arg, "--") && arg != "" {
			masked[i] = hidden
			continue
		}
		masked[i] = m.maskArg(arg)
	}
	return masked
}

func (m *Masker) maskArg(arg string) string {
	name, value, ok := strings.Cut(arg, "=")
	if ok && value != "" && !strings.ContainsAny(name, " \t") {
		if secretName(name) {
			return name + "=" + hidden
		}
		// An option whose value is a variable: --env=API_KEY=x
		if strings.HasPrefix(name, "-") && strings.Contains(value, "=") {
			return name + "=" + m.maskArg(value)
		}
	}
	return m.Mask(arg)
}

func isSecretOption(arg string) bool {
	return strings.HasPrefix(arg, "-") && !strings.ContainsAny(arg, "= ") && secretName(arg)
}
