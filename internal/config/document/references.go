// References in texts: ${VAR}, ${VAR:-default}, ${file:/path}.

package document

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	java "github.com/magiconair/properties"
)

// Expand replaces ${VAR}, ${VAR:-default}, ${file:/path}, ${file:/path:key} and $$ in the text of a
// scalar. What it puts in is not expanded again. A dollar sign before anything else stands for
// itself. The content of a file loses its last line end.
//
// As in a shell, the default is taken for a variable that is unset or empty; without a default only
// an unset variable is an error.
func Expand(text string, env map[string]string) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), nil
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "{"):
			reference, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return "", errors.New("a ${ without its } (a literal $ before { is written $$)")
			}
			value, err := resolve(reference, env)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

// resolve is the value of the text between ${ and }.
func resolve(reference string, env map[string]string) (string, error) {
	if path, ok := strings.CutPrefix(reference, "file:"); ok {
		value, err := readReference(path)
		if err != nil {
			return "", fmt.Errorf("read ${%s}: %w", reference, err)
		}
		return value, nil
	}
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	if !isVariable(name) {
		return "", errors.New("between ${ and } there must be VAR, VAR:-default or file:/path (a literal $ before { is written $$)")
	}
	value, set := env[name]
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return value, nil
}

// readReference is the content of the file at path; where there is none, and path ends in :key,
// that key of a .properties file, as Kafka Connect's FileConfigProvider reads it.
func readReference(path string) (string, error) {
	content, err := readSecretFile(path)
	if err == nil {
		return strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r"), nil
	}
	i := strings.LastIndexByte(path, ':')
	if i <= 0 || strings.ContainsRune(path[i:], '/') || !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	file, key := path[:i], path[i+1:]
	if content, err = readSecretFile(file); err != nil {
		return "", err
	}
	loader := java.Loader{Encoding: java.UTF8, DisableExpansion: true}
	read, err := loader.LoadBytes(content)
	if err != nil {
		// the library quotes the line, which may hold the secret
		return "", errors.New("it is not a .properties file")
	}
	value, ok := read.Get(key)
	if !ok {
		return "", fmt.Errorf("%s has no key %s", file, key)
	}
	return value, nil
}

func isVariable(name string) bool {
	for i, r := range name {
		deadLetter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !deadLetter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Literal writes text so that Expand gives it back.
func Literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }
