// Package read reads Debezium's files, in each of their forms, into names and texts.
package read

import (
	"bytes"
	"errors"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Wrapping begins a line of what another tool reads, a resource of Kubernetes or a compose file.
var Wrapping = regexp.MustCompile(`(?m)^(apiVersion|kind|services):`)

// Layer takes the form from the content, and from the name only where YAML and .properties look
// alike.
func Layer(f Input) (File, error) {
	content := bytes.TrimPrefix(f.Content, []byte("\xef\xbb\xbf"))
	ext := strings.ToLower(path.Ext(f.Name))
	if bytes.ContainsRune(content, 0) || ext != ".properties" && !utf8.Valid(content) {
		return File{}, errors.New("is not text in UTF-8")
	}
	trimmed := bytes.TrimSpace(content)
	switch {
	case len(trimmed) == 0:
		return File{}, errors.New("is empty")
	case trimmed[0] == '{' || trimmed[0] == '[':
		return readJSON(f.Name, trimmed)
	case ext == ".yaml" || ext == ".yml" || ext != ".properties" && Wrapping.Match(content):
		return readYAML(f.Name, content)
	case ext != ".properties" && IsEnvironment(content):
		return ReadEnvironment(f.Name, content)
	}
	return readProperties(f.Name, content)
}
