// Package read reads Debezium's files, in each of their forms, into names and texts.
package read

import (
	"bytes"
	"errors"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// yaml begins a line of a resource of Kubernetes, of a compose file or of application.yaml.
var yaml = lazy.Regexp(`(?m)^(apiVersion|kind|services|debezium):`)

// Layer takes the form from the content, and from the name only where an environment and
// .properties look alike.
func Layer(f Input) (File, error) {
	content := bytes.TrimPrefix(f.Content, []byte("\xef\xbb\xbf"))
	ext := strings.ToLower(path.Ext(f.Name))
	if bytes.ContainsRune(content, 0) || !utf8.Valid(content) {
		return File{}, errors.New("is not text in UTF-8")
	}
	trimmed := bytes.TrimSpace(content)
	switch {
	case len(trimmed) == 0:
		return File{}, errors.New("is empty")
	case trimmed[0] == '{' || trimmed[0] == '[':
		return readJSON(f.Name, trimmed)
	case ext == ".yaml" || ext == ".yml" || ext != ".properties" && yaml().Match(content):
		return File{}, errWrapped
	case ext != ".properties" && isEnvironment(content):
		return readEnvironment(f.Name, content), nil
	}
	return readProperties(f.Name, content)
}
