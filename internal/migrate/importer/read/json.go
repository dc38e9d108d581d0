// A connector's JSON, as Connect's REST interface and connect-standalone take it.

package read

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// readJSON reads a connector of Connect: its configuration alone, or as config next to name, as the
// REST API takes and gives it.
func readJSON(name string, content []byte) (File, error) {
	if content[0] == '[' {
		return File{}, errors.New("is a list; one connector is imported at a time")
	}
	members, err := object(content)
	if err != nil {
		return File{}, fmt.Errorf("is not JSON: %w", err)
	}
	l := File{Form: Connect, File: name}
	for _, m := range members {
		switch {
		case m.name == "config" && isObject(m.raw):
			return wrapped(l, members, m.raw)
		case m.name == "apiVersion", m.name == "services" && isObject(m.raw):
			return readYAML(name, content) // of which JSON is a part
		}
	}
	if len(members) > 0 && isObject(members[0].raw) {
		return File{}, errors.New("holds several connectors, or none; one is imported at a time, as GET /connectors/NAME gives it")
	}
	return flat(l, members)
}

// wrapped reads {"name": …, "config": {…}}; tasks and type, which the REST API gives too, say
// nothing about it.
func wrapped(l File, members []member, config json.RawMessage) (File, error) {
	inner, err := object(config)
	if err != nil {
		return File{}, fmt.Errorf("is not JSON: %w", err)
	}
	if l, err = flat(l, inner); err != nil {
		return File{}, err
	}
	for _, m := range members {
		switch m.name {
		case "config", "tasks", "type", "initial_state":
		case "name":
			if _, named := l.Get("name"); !named {
				text, err := scalarText(m)
				if err != nil {
					return File{}, err
				}
				l.Pairs = append([]Pair{{Name: "name", Text: text}}, l.Pairs...)
			}
		default:
			return File{}, fmt.Errorf("has %q beside config; want name and config", m.name)
		}
	}
	return l, nil
}

func flat(l File, members []member) (File, error) {
	for _, m := range members {
		if bytes.Equal(m.raw, []byte("null")) {
			continue
		}
		text, err := scalarText(m)
		if err != nil {
			return File{}, err
		}
		l.Pairs = append(l.Pairs, Pair{Name: m.name, Text: text})
	}
	if _, ok := l.Get("connector.class"); !ok {
		return File{}, errors.New("has no connector.class: it configures no connector")
	}
	return l, nil
}

type member struct {
	name string
	raw  json.RawMessage
}

// object gives the members in their order.
func object(content []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(content))
	if _, err := dec.Token(); err != nil {
		return nil, syntaxFault(err)
	}
	var members []member
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, syntaxFault(err)
		}
		name, ok := key.(string)
		if !ok {
			return nil, errors.New("a name is no string")
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, syntaxFault(err)
		}
		members = append(members, member{name: name, raw: raw})
	}
	if _, err := dec.Token(); err != nil {
		return nil, syntaxFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows after its end")
	}
	return members, nil
}

// syntaxFault keeps the place and drops the character that encoding/json quotes: it may be of a
// password.
func syntaxFault(err error) error {
	var at *json.SyntaxError
	if errors.As(err, &at) {
		return fmt.Errorf("a syntax error near byte %d", at.Offset)
	}
	return errors.New("it ends too early")
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// scalarText is a string, a number or a truth as Connect takes it: as text.
func scalarText(m member) (string, error) {
	switch m.raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(m.raw, &s); err != nil {
			return "", fmt.Errorf("%s: %w", m.name, syntaxFault(err))
		}
		return s, nil
	case '{', '[':
		return "", fmt.Errorf("%s is no single value", m.name)
	}
	return string(m.raw), nil
}
