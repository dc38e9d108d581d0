// Secrets: never printed, read again at every use.

package setting

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/secretfile"
)

const redacted = "[redacted]"

// Secret is a value that is never printed and that is read again at every use, so that a rotated
// password or token in a file is taken up without a restart. It is safe for concurrent use.
type Secret struct{ at *written } // nil: it is not set

// written is what the configuration says of a secret.
type written struct {
	text  string            // references not replaced
	env   map[string]string // the environment at start
	run   command           // instead of references; nil: none
	shown string
}

func newSecret(w written) Secret { return Secret{&w} }

func (s Secret) written() written {
	if s.at == nil {
		return written{}
	}
	return *s.at
}

// Plain is a secret that is no secret: one of the defaults.
func Plain(text string) Secret {
	return newSecret(written{text: Literal(text), shown: text})
}

// Read gives the value as it is now: it reads the files that the configuration names, unless all
// users of the host may do so, or runs its command, which ends with ctx. The error names a file, a
// variable or a program, never a value.
func (s Secret) Read(ctx context.Context) (string, error) {
	if run := s.written().run; run != nil {
		return run.run(ctx, commandTimeout)
	}
	for _, path := range s.Files() {
		if err := secretfile.Check(path); err != nil {
			return "", err
		}
	}
	w := s.written()
	return Expand(w.text, w.env)
}

// Files are the paths of the files that Read reads; a reference to a key of a .properties file has
// its key at the end, unless there is a file of that whole name.
func (s Secret) Files() (paths []string) {
	for _, reference := range fileReference().FindAllStringSubmatch(s.written().text, -1) {
		path := reference[1]
		if i := strings.LastIndexByte(path, ':'); i > 0 && !strings.ContainsRune(path[i:], '/') {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				path = path[:i]
			}
		}
		paths = append(paths, path)
	}
	return paths
}

var fileReference = lazy.Regexp(`\$\{file:([^}]*)\}`)

// IsSet is false for a secret that the configuration does not have, or has as "".
func (s Secret) IsSet() bool { return s.written().text != "" }

// Runs reports whether each Read runs a command, which may print something else each time.
func (s Secret) Runs() bool { return s.written().run != nil }

// File is the path of a secret that is nothing but a reference to a whole file.
func (s Secret) File() (path string, ok bool) {
	m := onlyFile().FindStringSubmatch(s.written().text)
	files := s.Files()
	if m == nil || files[0] != m[1] {
		return "", false
	}
	return m[1], true
}

// String is the value with what is secret in it replaced: all of it, or the password of an address.
func (s Secret) String() string { return s.written().shown }

// GoString is String, so that %#v shows no more.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String, so that JSON, YAML and logs show no more.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// onlyReferences matches text that is nothing but references without a default: it can be shown as
// it is.
var onlyReferences = lazy.Regexp(`^(\$\{(file:[^}]*|[A-Za-z_][A-Za-z0-9_]*)\})+$`)

// onlyFile matches a single reference to a file.
var onlyFile = lazy.Regexp(`^\$\{file:([^}]+)\}$`)

// ShowPassword is what may be shown of a password or token written as text.
func ShowPassword(text, _ string) string {
	if text == "" || onlyReferences().MatchString(text) {
		return text
	}
	return redacted
}

// ShowAddress is what may be shown of an address: all of it but the passwords. When more @ follow
// than the one after the user, the end of the password is unclear, and nothing is shown.
func ShowAddress(_, value string) string {
	scheme, rest, isURL := strings.Cut(value, "://")
	if !isURL {
		return keywordPassword().ReplaceAllString(value, "${1}xxxxx")
	}
	if i := strings.IndexAny(rest, "@/?"); i >= 0 && rest[i] == '@' {
		user, _, hasPassword := strings.Cut(rest[:i], ":")
		if hasPassword {
			user += ":xxxxx"
		}
		scheme, rest = scheme+"://"+user+"@", rest[i+1:]
	} else {
		scheme += "://"
	}
	if strings.Contains(rest, "@") {
		return redacted
	}
	path, query, _ := strings.Cut(rest, "?")
	if query == "" {
		return scheme + path
	}
	parameters := strings.Split(query, "&")
	for i, parameter := range parameters {
		name, _, _ := strings.Cut(parameter, "=")
		if plainName, err := url.QueryUnescape(name); err != nil || strings.Contains(plainName, "password") {
			parameters[i] = name + "=xxxxx"
		}
	}
	return scheme + path + "?" + strings.Join(parameters, "&")
}

// keywordPassword matches the password of a libpq key=value string, quoted or not.
var keywordPassword = lazy.Regexp(`((?:^|\s)(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)+)`)
