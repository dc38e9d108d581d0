// The list source.tables.

package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

func (l *loader) tablesKey(path string) setting.Key {
	return setting.Key{
		Name: path, Kind: setting.List, Form: l.tableList(),
		Set:  func(_ *setting.Reader, path string, n *setting.Node) { l.tables(path, n) },
		Show: func() string { return l.showTables() },
	}
}

// tables reads source.tables: names, or mappings of a name and keys of the outbox section for this
// table alone.
func (l *loader) tables(path string, n *setting.Node) {
	l.cfg.Source.Tables = nil
	if n.Kind == setting.Mapping {
		l.Fault(n.Where, path, "wants a list of tables, has "+n.Kind.String())
		return
	}
	for i, item := range n.Values() {
		l.table(fmt.Sprintf("%s[%d]", path, i), item)
	}
	if len(n.Values()) == 0 && l.cfg.Source.MessagePrefix == "" {
		l.Fault(n.Where, path, "names no table, and source.message_prefix is not set: there is nothing to relay")
	}
}

func (l *loader) table(path string, n *setting.Node) {
	name := n
	t := Table{Outbox: l.cfg.Outbox}
	if n.Kind == setting.Mapping {
		name = nil
		for _, e := range n.Entries {
			if e.Name == "name" {
				name = e.Value
			} else if e.Value.Kind != setting.Null {
				l.override(&t.Outbox, path, e)
			}
		}
		if name == nil {
			l.Fault(n.Where, path, "has no name")
			return
		}
	}
	written, ok := l.Scalar(path, name)
	if !ok {
		return
	}
	var err error
	if t.Schema, t.Name, err = parseTable(written); err != nil {
		l.Fault(name.Where, path, err.Error())
		return
	}
	if slices.ContainsFunc(l.cfg.Source.Tables, func(other Table) bool { return other.String() == t.String() }) {
		l.Fault(name.Where, path, "names "+t.String()+" a second time")
		return
	}
	l.cfg.Source.Tables = append(l.cfg.Source.Tables, t)
	l.requireColumns(path, n.Where, &t.Outbox)
}

// override reads one key of a table's entry over its copy of the outbox section.
func (l *loader) override(into *Outbox, path string, e setting.Entry) {
	if e.Name == "headers" {
		l.Fault(e.Where, join(path, e.Name), "cannot be set for one table; outbox.headers are the same for all")
		return
	}
	known := []string{"name"}
	for _, k := range l.outboxFields(into) {
		if k.Name == join("outbox", e.Name) {
			k.Set(&l.Reader, join(path, e.Name), e.Value)
			return
		}
		known = append(known, strings.TrimPrefix(k.Name, "outbox."))
	}
	l.Fault(e.Where, join(path, e.Name), "unknown key"+setting.OrNearest(e.Name, known))
}

// requireColumns refuses a mapping without the two columns that every event has, and one whose
// column of the transaction is another part's: init would overwrite its values.
func (l *loader) requireColumns(path string, where setting.Place, o *Outbox) {
	for _, required := range []struct {
		key, of string
		column  Column
	}{{"id", "an id", o.ID}, {"payload", "a payload", o.Payload}} {
		if key := join(path, required.key); !required.column.Mapped() && !l.IsFaulty(key) {
			l.Fault(cmp.Or(l.PlaceOf(key), where), key, "is empty, but every event needs "+required.of+": name the column that holds it")
		}
	}
	for _, part := range []struct {
		key    string
		column Column
	}{
		{"id", o.ID},
		{"aggregate", o.Aggregate},
		{"key", o.Key},
		{"type", o.Type},
		{"payload", o.Payload},
		{"timestamp", o.Timestamp},
		{"traceparent", o.Traceparent},
		{"headers_column", o.HeadersColumn},
	} {
		for _, name := range o.Transaction.Names {
			if key := join(path, "transaction"); slices.Contains(part.column.Names, name) && !l.IsFaulty(key) {
				l.Fault(cmp.Or(l.PlaceOf(key), l.PlaceOf(join(path, part.key)), where), key, fmt.Sprintf("is %q, the column of %s too: name a column that nothing else uses", name, part.key))
			}
		}
	}
}

// parseTable reads schema.name, or name alone in schema public. Names stand as in the catalog,
// upper case and all; one with a dot or a quote in it is written in double quotes as in SQL.
func parseTable(s string) (schema, name string, err error) {
	first, rest, err := parseIdentifier(s)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("table %q: %w", s, err)
	case rest == "":
		return "public", first, nil
	case rest[0] == '.':
		second, rest, err := parseIdentifier(rest[1:])
		if err != nil {
			return "", "", fmt.Errorf("table %q: %w", s, err)
		}
		if rest == "" {
			return first, second, nil
		}
	}
	return "", "", fmt.Errorf("table %q: want name or schema.name", s)
}

// maxIdentifier is the longest name PostgreSQL keeps, NAMEDATALEN - 1 bytes.
const maxIdentifier = 63

func parseIdentifier(s string) (identifier, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		identifier, rest, err = unquoteIdentifier(s[1:])
	} else if i := strings.IndexAny(s, `."`); i >= 0 {
		identifier, rest = s[:i], s[i:]
	} else {
		identifier = s
	}
	switch {
	case err != nil:
		return "", "", err
	case identifier == "" || strings.TrimSpace(identifier) != identifier || strings.ContainsRune(identifier, 0):
		return "", "", errors.New("want name or schema.name")
	case len(identifier) > maxIdentifier:
		return "", "", fmt.Errorf("%q is longer than %d bytes, the most PostgreSQL keeps", identifier, maxIdentifier)
	}
	return identifier, rest, nil
}

func unquoteIdentifier(s string) (identifier, rest string, err error) {
	var out strings.Builder
	for {
		before, after, closed := strings.Cut(s, `"`)
		out.WriteString(before)
		if !closed {
			return "", "", errors.New("a double quote is not closed")
		}
		if !strings.HasPrefix(after, `"`) {
			return out.String(), after, nil
		}
		out.WriteByte('"')
		s = after[1:]
	}
}

// showTables writes a table whose mapping is the outbox section's as its name, any other with the
// keys that differ.
func (l *loader) showTables() string {
	section := l.outboxFields(&l.cfg.Outbox)
	return setting.InlineList(l.cfg.Source.Tables, func(t Table) string {
		name := setting.Quote(showIdentifier(t.Schema) + "." + showIdentifier(t.Name))
		differing := []string{"name: " + name}
		for i, k := range l.outboxFields(&t.Outbox) {
			if k.Show() != section[i].Show() {
				differing = append(differing, strings.TrimPrefix(k.Name, "outbox.")+": "+k.Show())
			}
		}
		if len(differing) == 1 {
			return name
		}
		return "{" + strings.Join(differing, ", ") + "}"
	})
}

// showIdentifier quotes a name as parseTable reads it.
func showIdentifier(name string) string {
	if strings.ContainsAny(name, `."`) {
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return name
}
