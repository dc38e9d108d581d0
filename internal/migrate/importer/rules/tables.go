// The rules about which tables and columns are captured.

package rules

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/regex"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

func tableRules() []rule {
	return []rule{
		honoured("source.tables", "names of tables, `public.outbox` or `public\\.outbox`, spelled as in the catalogue: upper and lower case are the same to Debezium alone. Patterns: cannot, name the tables", "table.include.list"),
		when(superseded("without effect next to table.include.list; alone: cannot, it does not name the outbox", "table.exclude.list", "schema.include.list", "schema.exclude.list", "table.whitelist", "table.blacklist"),
			func(b *Builder, p *settings.Property) {
				if b.ByName["table.include.list"] != nil {
					b.Say(p, output.Superseded, "", "source.tables names the tables")
					return
				}
				b.Cannot(p, "does not say which table is the outbox; set table.include.list")
			}),
		superseded("the tables are named", "table.ignore.builtin", "database.include.list", "database.exclude.list"),
		impossible("columns are sent as they are; leave it out if it touches none that the Event Router uses", "column.include.list", "column.exclude.list", "column.mask.*", "column.truncate.*"),
		superseded("the Event Router makes the key", "message.key.columns"),
		when(superseded("shows only in the schemas of JsonConverter; where keys, values or headers (Debezium Server's, by default) have them: cannot", "column.propagate.source.type", "datatype.propagate.source.type", "include.schema.comments"), (*Builder).takeSchemaOnly),
		superseded("the outbox has no UPDATE to compare", "skip.messages.without.change"),
		when(superseded("the relay sends only INSERTs; with c among them: cannot, Debezium sends nothing then", "skipped.operations"), func(b *Builder, p *settings.Property) {
			text, ok := p.Value.Plain()
			if ok && !slices.Contains(settings.SplitList(strings.ToLower(text)), "c") {
				b.Say(p, output.Superseded, "", "only INSERTs are sent")
				return
			}
			b.Cannot(p, "skips INSERTs, which are what an outbox consists of")
		}),
	}
}

// tables writes source.tables.
func (b *Builder) tables() {
	p := b.ByName["table.include.list"]
	if p == nil {
		b.Absent(output.Cannot, "table.include.list", "source.tables", "all tables are captured, and the outbox has to be named")
		return
	}
	if p.Fault != "" {
		return
	}
	names, past, err := b.tableNames(p)
	if err != nil {
		b.reverse(p, err.Error())
		return
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = output.Quote(name)
	}
	b.Set("source.tables", "["+strings.Join(quoted, ", ")+"]", p, b.ByName["signal.data.collection"], b.predicate())
	if joined := strings.Join(names, ", "); joined != strings.ToLower(joined) {
		b.warnLater(p, "to Debezium upper and lower case are the same, to the relay they are not: these have to be the catalogue's names: "+joined)
	}
	if len(past) > 0 {
		b.reverse(p, "names "+strings.Join(past, ", ")+", past the Event Router by its predicate: Debezium sends each change there as it is. The relay does not, "+
			"and moves the slot past them: first give these tables a connector, slot and publication of their own")
	}
}

// reverse turns the verdict on a property, which its rule gave, into cannot.
func (b *Builder) reverse(p *settings.Property, why string) {
	if e := b.entry(p); e != nil && e.Verdict != output.Cannot {
		*e = output.Entry{Verdict: output.Cannot, Property: p.Written, File: p.File, Why: why}
		p.Refused = true
		return
	}
	b.Cannot(p, why)
}

// tableNames are the outbox tables that the property names, and past them the tables whose change
// events Debezium sends.
func (b *Builder) tableNames(p *settings.Property) (names, past []string, err error) {
	text, ok := p.Value.Plain()
	if !ok {
		return nil, nil, errors.New("names tables by a reference; write them")
	}
	for _, pattern := range settings.SplitList(text) {
		name := strings.ReplaceAll(pattern, `\.`, ".")
		switch {
		case regexp.QuoteMeta(name) != strings.ReplaceAll(name, ".", `\.`):
			return nil, nil, fmt.Errorf("%q is a pattern; write the names of the tables", pattern)
		case strings.Count(name, ".") != 1:
			return nil, nil, fmt.Errorf("%q is no schema.table", name)
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	names, past, err = b.filtered(names)
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, nil, errors.New("leaves no table")
	}
	return names, past, nil
}

// filtered takes out the table of signals and those that the router's predicate keeps from it; past
// are these but that of heartbeats.
func (b *Builder) filtered(names []string) (kept, past []string, err error) {
	if signal, ok := b.Plain("signal.data.collection", ""); ok {
		names = slices.DeleteFunc(names, func(n string) bool { return n == signal })
	}
	pattern, negate := b.topicPredicate()
	if pattern == "" {
		return names, nil, nil
	}
	re, err := regex.Compile(pattern)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot be compared with the pattern of the predicate, which %w", err)
	}
	name := "topic.prefix"
	if b.ByName[name] == nil {
		name = "database.server.name"
	}
	prefix, ok := b.Plain(name, "")
	if !ok {
		return nil, nil, errors.New("cannot be compared with the predicate: " + name + " is a reference")
	}
	for _, name := range names {
		switch {
		case matches(re, prefix+"."+name) != negate:
			kept = append(kept, name)
		case !b.heartbeat(name):
			past = append(past, name)
		}
	}
	return kept, past, nil
}

// heartbeat is true for the table that heartbeat.action.query writes, whose change events nobody
// needs.
func (b *Builder) heartbeat(table string) bool {
	query, _ := b.Plain("heartbeat.action.query", "")
	_, bare, _ := strings.Cut(table, ".")
	return regexp.MustCompile(`(?i)(^|[\s".])` + regexp.QuoteMeta(bare) + `($|[\s"(;])`).MatchString(query)
}

func (b *Builder) takeSchemaOnly(p *settings.Property) {
	switch {
	case p.Name == "include.schema.comments" && b.Is(p.Name, "", "false"):
		b.Say(p, output.Superseded, "", "comments of columns do not show")
	case b.schemas("key", "value", "header"):
		b.Cannot(p, "would show in the schemas that are sent with each record")
	default:
		b.Say(p, output.Superseded, "", "records carry no schemas")
	}
}

// matches is Java's matches: the whole text.
func matches(re *regexp.Regexp, text string) bool {
	re.Longest()
	at := re.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}
