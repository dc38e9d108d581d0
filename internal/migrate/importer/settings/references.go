// Reading the references in values: Quarkus' ${name}, ${name:default} and $$, and those of
// Connect's providers, ${provider:path:key}.

package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// lookup is where a reference of Quarkus finds what it names.
type lookup struct {
	settings  map[string]setting
	variables map[string]string
	following []string // the settings whose references lead here
}

var variable = lazy.Regexp(`^[A-Z_][A-Z0-9_]*$`)

// expandQuarkus reads a value of Debezium Server's. $$ is a dollar sign, and so is \$; one before
// anything but { stands for itself.
func expandQuarkus(text string, in lookup) (output.Value, error) {
	text = strings.ReplaceAll(text, `\$`, "$$")
	var out output.Value
	for {
		before, rest, found := strings.Cut(text, "$")
		if before != "" {
			out = append(out, output.Part{Text: before})
		}
		switch {
		case !found:
			return out.Joined(), nil
		case strings.HasPrefix(rest, "$"):
			out = append(out, output.Part{Text: "$"})
			text = rest[1:]
		case strings.HasPrefix(rest, "{"):
			end := closing(rest)
			if end < 0 {
				return nil, errors.New("has a ${ without its }")
			}
			v, err := in.resolve(rest[1:end])
			if err != nil {
				return nil, err
			}
			out = append(out, v...)
			text = rest[end+1:]
		default:
			out = append(out, output.Part{Text: "$"})
			text = rest
		}
	}
}

// closing is where the brace that s begins with is closed, -1 for nowhere.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func (in lookup) resolve(reference string) (output.Value, error) {
	name, fallback, hasDefault := strings.Cut(reference, ":")
	if slices.Contains(in.following, name) {
		return nil, fmt.Errorf("${%s} leads back to itself", name)
	}
	if s, ok := in.settings[name]; ok && s.text != "" {
		in.following = append(slices.Clone(in.following), name)
		return expandQuarkus(s.text, in)
	}
	known, isKnown := in.variables[name]
	if !isKnown {
		known, isKnown = in.variables[read.VariableOf(name)]
		if isKnown {
			name = read.VariableOf(name)
		}
	}
	switch {
	case isKnown && known != "" && variable().MatchString(name):
		return output.Value{{Ref: name, Text: known, Known: true}}, nil
	case variable().MatchString(name) && strings.ContainsAny(fallback, "{}$"):
		return nil, fmt.Errorf("${%s} has another reference as its default; write one of the two", name)
	case variable().MatchString(name) && hasDefault:
		return output.Value{{Ref: name + ":-" + fallback}}, nil
	case variable().MatchString(name):
		return output.Value{{Ref: name}}, nil
	case hasDefault:
		return expandQuarkus(fallback, in)
	}
	return nil, fmt.Errorf("${%s} is a reference to Quarkus, and no FILE says what it stands for; what is meant for Debezium itself is written $${%s} there", name, name)
}

// providerReference is the form that Connect's ConfigTransformer looks for; what does not fit it
// stays text.
var providerReference = lazy.Regexp(`\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}`)

// expandProviders reads the references of v's text to providers.
func expandProviders(v output.Value) (output.Value, error) {
	var out output.Value
	for _, p := range v {
		if p.Ref != "" {
			out = append(out, p)
			continue
		}
		text := p.Text
		for m := providerReference().FindStringSubmatch(text); m != nil; m = providerReference().FindStringSubmatch(text) {
			ref, err := providerFile(m[1], m[2], m[3])
			if err != nil {
				return nil, err
			}
			before, after, _ := strings.Cut(text, m[0])
			out = append(out, output.Part{Text: before}, output.Part{Ref: ref})
			text = after
		}
		out = append(out, output.Part{Text: text})
	}
	return out.Joined(), nil
}

// UsualProviders are the providers that come with Kafka, under the names that they usually have.
var UsualProviders = map[string]string{
	"file": "FileConfigProvider", "env": "EnvVarConfigProvider", "directory": "DirectoryConfigProvider", "dir": "DirectoryConfigProvider",
}

func providerFile(provider, path, key string) (string, error) {
	switch UsualProviders[provider] {
	case "FileConfigProvider":
		return "file:" + path + ":" + key, nil
	case "DirectoryConfigProvider":
		return "file:" + strings.TrimSuffix(path, "/") + "/" + key, nil
	case "EnvVarConfigProvider":
		if !variable().MatchString(strings.ToUpper(key)) {
			return "", fmt.Errorf("${%s:%s} names no variable", provider, key)
		}
		return key, nil
	}
	return "", fmt.Errorf("is a reference to the configuration provider %q, which does not exist here; file, directory and env do: put the value into a file and write ${file:/path}", provider)
}
