// The types of configuration keys: how each is read, checked and printed.

package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// field is one key: its path in the file, how the text of a variable becomes its value, how it is
// read and printed.
type field struct {
	path string
	kind document.Kind // of the value when it comes from a variable
	// set reads n, the value of the key at path, into the configuration and reports what is wrong
	// with it.
	set func(l *loader, path string, n *document.Node)
	// show is the value as YAML on one line.
	show func(c *Config) string
	form jsonSchema // what `config schema` says of the value
}

// scalarField is a field of a single value that parse understands.
func scalarField[T any](path string, want jsonSchema, at func(*Config) *T, parse func(string) (T, error), show func(T) string) field {
	return field{
		path: path,
		kind: document.Scalar,
		form: want,
		set: func(l *loader, path string, n *document.Node) {
			written, ok := l.scalar(path, n)
			if !ok {
				return
			}
			value, err := parse(written)
			if err != nil {
				l.fault(n.Where, path, err.Error())
				return
			}
			*at(l.cfg) = value
		},
		show: func(c *Config) string { return show(*at(c)) },
	}
}

func text(path string, at func(*Config) *string) field {
	return scalarField(path, anyText(), at, func(s string) (string, error) { return s, nil }, quote)
}

func templated(path string, at func(*Config) *sink.Template) field {
	return scalarField(path, anyText(), at, sink.ParseTemplate, func(t sink.Template) string { return quote(t.String()) })
}

// choice is one of some values; a first one of "" stands for none of them, and is not named.
func choice(path string, at func(*Config) *string, values ...string) field {
	return scalarField(path, oneOf(values), at, func(s string) (string, error) {
		if slices.Contains(values, s) {
			return s, nil
		}
		return "", fmt.Errorf("is %q, want one of %s", s, strings.TrimPrefix(strings.Join(values, ", "), ", "))
	}, quote)
}

func boolean(path string, at func(*Config) *bool) field {
	return scalarField(path, truth(), at, parseBool, strconv.FormatBool)
}

func integer(path string, low, high int, at func(*Config) *int) field {
	return scalarField(path, wholeNumber(low, high), at, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("is %q, want a whole number from %d to %d", s, low, high)
		}
		return n, nil
	}, strconv.Itoa)
}

func duration(path string, low, high time.Duration, at func(*Config) *time.Duration) field {
	return scalarField(path, timeSpan(low), at, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < low || d > high {
			return 0, fmt.Errorf("is %q, want a duration with its unit from %s to %s, such as 20s", s, showDuration(low), showDuration(high))
		}
		return d, nil
	}, showDuration)
}

func size(path string, low, high int64, at func(*Config) *int64) field {
	return scalarField(path, byteCount(low, high), at, func(s string) (int64, error) {
		n, ok := parseSize(s)
		if !ok || n < low || n > high {
			return 0, fmt.Errorf("is %q, want bytes or a size such as 16MiB, from %s to %s", s, showSize(low), showSize(high))
		}
		return n, nil
	}, showSize)
}

func secret(path string, show func(text, value string) string, at func(*Config) *Secret) field {
	return field{
		path: path,
		kind: document.Scalar,
		form: anyText(),
		set: func(l *loader, path string, n *document.Node) {
			if s, ok := l.secret(path, n, show); ok {
				*at(l.cfg) = s
			}
		},
		show: func(c *Config) string { return quoteSecret(*at(c)) },
	}
}

func secrets(path string, show func(text, value string) string, at func(*Config) *[]Secret) field {
	return field{
		path: path,
		kind: document.List,
		form: listOrOne(anyText(), 1),
		set: func(l *loader, path string, n *document.Node) {
			var read []Secret
			for _, item := range n.Values() {
				if s, ok := l.secret(path, item, show); ok {
					read = append(read, s)
				}
			}
			*at(l.cfg) = read
		},
		show: func(c *Config) string { return inlineList(*at(c), quoteSecret) },
	}
}

func column(path string, at func(*Outbox) *Column) field {
	return field{
		path: path,
		kind: document.List,
		form: columnNames(),
		set:  func(l *loader, path string, n *document.Node) { *at(l.outbox) = l.column(path, n) },
		show: func(c *Config) string { return showColumn(*at(&c.Outbox)) },
	}
}

func outboxHeaders(path string) field {
	return field{
		path: path,
		kind: document.Mapping,
		form: namedColumns(jsonSchema{"minLength": 1, "maxLength": maxHeaderName, "not": jsonSchema{"enum": reserved}}),
		set:  func(l *loader, path string, n *document.Node) { l.outbox.Headers = l.named(path, n, l.checkHeader) },
		show: func(c *Config) string { return showNamed(c.Outbox.Headers) },
	}
}

func properties(path string) field {
	return field{
		path: path,
		kind: document.Mapping,
		form: namedColumns(jsonSchema{"enum": propertyNames}),
		set: func(l *loader, path string, n *document.Node) {
			l.cfg.Sink.RabbitMQ.Properties = l.named(path, n, checkProperty)
		},
		show: func(c *Config) string { return showNamed(c.Sink.RabbitMQ.Properties) },
	}
}

func tables(path string) field {
	return field{path: path, kind: document.List, form: tableList(), set: (*loader).tables, show: showTables}
}

// emptySection is a sink without keys: naming it chooses it.
func emptySection(path string) field {
	return field{
		path: path,
		kind: document.Mapping,
		form: jsonSchema{"type": "object", "maxProperties": 0},
		set: func(l *loader, path string, n *document.Node) {
			if n.Kind != document.Mapping || len(n.Entries) > 0 {
				l.fault(n.Where, path, "has no keys; {} chooses it")
			}
		},
		show: func(*Config) string { return "{}" },
	}
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("is %q, want true or false", s)
}

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1}}

// parseSize reads whole bytes with or without a unit; MiB is 1024², MB is 1000².
func parseSize(s string) (int64, bool) {
	for _, unit := range units {
		digits, ok := strings.CutSuffix(s, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/unit.bytes {
			return 0, false
		}
		return n * unit.bytes, true
	}
	return 0, false
}
