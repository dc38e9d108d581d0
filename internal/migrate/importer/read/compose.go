// Reading the environment of Debezium Server's service in a compose file.

package read

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// readCompose finds the one service; nil when the documents are no compose file.
func readCompose(file string, documents []yaml.MapSlice) (*File, error) {
	var found *File
	var names []string
	composed := false
	for _, d := range documents {
		services, ok := under(d, "services").(yaml.MapSlice)
		if !ok || under(d, "debezium") != nil {
			continue
		}
		composed = true
		for _, item := range services {
			service, _ := item.Value.(yaml.MapSlice)
			variables := environmentOf(service)
			if !isServer(service, variables) {
				continue
			}
			names = append(names, yamlText(item.Key))
			l, err := composeLayer(file, service, variables)
			if name := yamlText(item.Key); err != nil {
				return nil, fmt.Errorf("is a compose file, and in service %q %w; give its environment as an env file (docker compose exec %s env)", name, err, name)
			}
			found = l
		}
	}
	switch {
	case !composed:
		return nil, nil
	case len(names) == 0:
		return nil, errors.New("is a compose file without a Debezium Server, by images and variables; give the files that its container reads, or, for Kafka Connect, " +
			"the connector's JSON, and with --worker-config the environment of the worker as an env file (docker compose exec SERVICE env)")
	case len(names) > 1:
		return nil, fmt.Errorf("is a compose file with several Debezium Servers, %s; give the environment of one as an env file (docker compose exec %s env)",
			strings.Join(names, ", "), names[0])
	}
	return found, nil
}

// composedVariable is a variable of a service. Without a value it is that of Compose's own
// environment.
type composedVariable struct {
	name  string
	value any
}

// environmentOf reads both of its forms: NAME: value, and - NAME=value.
func environmentOf(service yaml.MapSlice) (all []composedVariable) {
	switch v := under(service, "environment").(type) {
	case yaml.MapSlice:
		for _, item := range v {
			all = append(all, composedVariable{yamlText(item.Key), item.Value})
		}
	case []any:
		for _, item := range v {
			c := composedVariable{name: yamlText(item)}
			if name, value, ok := strings.Cut(c.name, "="); ok {
				c = composedVariable{name, value}
			}
			all = append(all, c)
		}
	}
	return all
}

// isServer knows Debezium Server by its image or by variables that are its properties.
func isServer(service yaml.MapSlice, variables []composedVariable) bool {
	image := strings.ToLower(fmt.Sprint(under(service, "image")))
	return strings.Contains(image, "debezium") && strings.Contains(image, "server") ||
		slices.ContainsFunc(variables, func(v composedVariable) bool { return IsPropertyVariable(v.name) })
}

// composeLayer is what the container's environment is, as far as the file says it. Of variables
// that are not Debezium's own, those that Compose takes from elsewhere have no value here:
// references to them stay.
func composeLayer(file string, service yaml.MapSlice, variables []composedVariable) (*File, error) {
	for _, elsewhere := range []string{"env_file", "extends"} {
		if under(service, elsewhere) != nil {
			return nil, errors.New("there is " + elsewhere)
		}
	}
	l := &File{Form: Environment, File: file}
	for _, v := range variables {
		text, reference, ok := composeText(v.value)
		switch {
		case !IsPropertyVariable(v.name) && (!ok || reference != ""):
			text = ""
		case !ok:
			return nil, fmt.Errorf("%s has its value from elsewhere", v.name)
		case reference != "" && slices.ContainsFunc(variables, func(other composedVariable) bool { return other.name == reference && shadows(other) }):
			return nil, fmt.Errorf("%s refers to %s of Compose's environment, which is another one in the container", v.name, reference)
		}
		l.Pairs = append(l.Pairs, Pair{Name: v.name, Text: text})
	}
	return l, nil
}

// shadows is true of a variable that has a value of its own in the container.
func shadows(v composedVariable) bool {
	_, reference, ok := composeText(v.value)
	return ok && reference != v.name
}

var composeReference = regexp.MustCompile(`^\$(?:([A-Z_][A-Z0-9_]*)|\{([A-Z_][A-Z0-9_]*)(?::?(?:-([^{}$]*)|\?[^{}$]*))?\})$`)

// composeText is what the container gets: $$ is a dollar sign, and a value that is one reference
// stays one, in Quarkus' syntax.
func composeText(v any) (text, reference string, ok bool) {
	switch v.(type) {
	case nil, yaml.MapSlice, []any:
		return "", "", false
	}
	text = yamlText(v)
	if !strings.Contains(strings.ReplaceAll(text, "$$", ""), "$") {
		return strings.ReplaceAll(text, "$$", "$"), "", true
	}
	m := composeReference.FindStringSubmatch(text)
	if m == nil {
		return "", "", false
	}
	reference = m[1] + m[2]
	if m[3] != "" {
		return "${" + reference + ":" + m[3] + "}", reference, true
	}
	return "${" + reference + "}", reference, true
}
