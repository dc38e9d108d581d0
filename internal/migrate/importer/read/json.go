// A connector's JSON, as Connect's REST interface and connect-standalone take it.

package read

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// readJSON reads a connector of Connect: its configuration alone, or as config next to name, as the
// REST API takes and gives it. The names come in alphabetical order.
func readJSON(name string, content []byte) (File, error) {
	members, err := object(content)
	if config := members["config"]; len(config) > 0 && config[0] == '{' {
		for key := range members {
			if !slices.Contains([]string{"name", "config", "tasks", "type", "initial_state"}, key) {
				return File{}, fmt.Errorf("has %q beside config; want name and config", key)
			}
		}
		members, err = object(config)
	}
	switch {
	case err != nil:
		return File{}, err
	case members["apiVersion"] != nil, members["services"] != nil:
		return File{}, errWrapped
	case members["connector.class"] == nil:
		return File{}, errors.New("has no connector.class: it is not the configuration of one connector, as GET /connectors/NAME gives it")
	}
	l := File{Form: Connect, File: name}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		text := string(members[key])
		switch text[0] {
		case 'n': // null: not set
			continue
		case '{', '[':
			return File{}, fmt.Errorf("%s is no single value", key)
		case '"':
			if err := json.Unmarshal(members[key], &text); err != nil {
				return File{}, notJSON(err)
			}
		}
		l.Pairs = append(l.Pairs, Pair{Name: key, Text: text})
	}
	return l, nil
}

func object(content []byte) (members map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(content, &members); err != nil {
		return nil, notJSON(err)
	}
	return members, nil
}

// notJSON keeps the place and drops the character that encoding/json quotes: it may be of a
// password.
func notJSON(err error) error {
	var at *json.SyntaxError
	if errors.As(err, &at) {
		return fmt.Errorf("is not JSON: a syntax error near byte %d", at.Offset)
	}
	return errors.New("is not the JSON of one connector")
}
