// Which rows the relay reads and what it makes of them: the tables, the Event Router among the
// transforms, and the options of sink.compat.

package importer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// writeTables writes source.tables, the outbox tables by name.
func (r *Result) writeTables() {
	p := r.tableList()
	switch {
	case p == nil:
		r.absent(Cannot, "table.include.list", "source.tables", "all tables are captured, and the outbox has to be named")
		return
	case p.fault != "":
		return
	}
	names, err := r.tableNames(p)
	if err != nil {
		p.change(Cannot, err.Error())
		return
	}
	for i := range names {
		names[i] = quote(names[i])
	}
	joined := strings.Join(names, ", ")
	r.set("source.tables", "["+joined+"]", p, r.byName["signal.data.collection"])
	if joined != strings.ToLower(joined) {
		p.entry.Warning = true
		p.entry.Why = "to Debezium upper and lower case are the same, to the relay they are not: these have to be the catalogue's names: " + joined
	}
}

// tableNames returns the outbox tables that a property names: all its tables except the table of
// signals. It fails when a name is a pattern or a reference, because the relay needs real
// names.
func (r *Result) tableNames(p *property) (names []string, err error) {
	text, known := p.value.plain()
	if !known {
		return nil, errors.New("names tables by a reference; write them")
	}
	signals, _ := r.textOf("signal.data.collection", "")
	for _, pattern := range splitList(text) {
		name := strings.ReplaceAll(pattern, `\.`, ".")
		switch {
		case regexp.QuoteMeta(name) != strings.ReplaceAll(name, ".", `\.`):
			return nil, fmt.Errorf("%q is a pattern; write the names of the tables", pattern)
		case strings.Count(name, ".") != 1:
			return nil, fmt.Errorf("%q is no schema.table", name)
		case name != signals && !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("leaves no table")
	}
	return names, nil
}

// tableList returns the property that names the captured tables, or nil.
func (r *Result) tableList() *property {
	if p := r.byName["table.include.list"]; p != nil || !r.oldDebezium() {
		return p
	}
	return r.byName["table.whitelist"]
}

// otherList converts the lists that choose tables in another way. They do nothing beside the list
// of tables; without it they do not say which table is the outbox.
func otherList(r *Result, p *property) Entry {
	switch r.tableList() {
	case nil:
	case p:
		return Entry{Verdict: Honoured, Target: "source.tables"}
	default:
		return Entry{Why: "source.tables names the tables"}
	}
	return refused("does not say which table is the outbox; set table.include.list")
}

// skipped converts skipped.operations: it refuses a list with c in it, because Debezium skips
// INSERTs then.
func skipped(_ *Result, p *property) Entry {
	text, known := p.value.plain()
	if known && !slices.Contains(splitList(strings.ToLower(text)), "c") {
		return Entry{Why: "only INSERTs are sent"}
	}
	return refused("skips INSERTs, which are what an outbox consists of")
}

// extendedHeaders converts extended.headers.enabled: it warns that the relay does not send the
// headers __debezium.context.*.
func extendedHeaders(r *Result, p *property) Entry {
	if r.valueIs(p.name, "", "false") {
		return Entry{Why: "the headers __debezium.context.* are not sent, here as there"}
	}
	return Entry{Warning: true, Why: leftOutHeaders}
}

// oldDebezium reports whether the file is one of Debezium 1: later versions want topic.prefix.
func (r *Result) oldDebezium() bool {
	return r.byName["topic.prefix"] == nil && r.byName["database.server.name"] != nil
}

// serverName converts database.server.name, as topic.prefix was called in Debezium 1.
func serverName(r *Result, _ *property) Entry {
	if !r.oldDebezium() {
		return Entry{Verdict: Superseded, Why: "topic.prefix counts; Debezium 2 and later do not read it"}
	}
	return Entry{
		Verdict: Honoured, Target: compatOptions + ".topic.prefix", Warning: true,
		Why: "this file is one of Debezium 1, and the relay sends what Debezium 3.6 makes of a row: compare before you move (cdc-relay compare debezium)",
	}
}

// payloadID converts table.field.event.payload.id: Debezium 1 took the key from this column when
// that of table.field.event.key was NULL.
func payloadID(r *Result, p *property) Entry {
	if key := r.byName["router.table.field.event.key"]; key != nil && (!r.oldDebezium() || key.value == p.value) {
		return Entry{Verdict: Superseded, Why: "table.field.event.key counts"}
	}
	return Entry{}
}

// withRouter converts transforms: it refuses a connector without the Outbox Event Router, and one
// that Connect would refuse.
func withRouter(r *Result, p *property) Entry {
	if r.router == "" {
		return refused("has no " + eventRouter + ": this connector sends change events, which is not what the relay is for")
	}
	text, _ := p.value.plain()
	for _, alias := range splitList(text) {
		if alias != r.router && r.byName["transforms."+alias+".type"] == nil {
			return refused(fmt.Sprintf("lists %s, which has no transforms.%s.type, so Connect refuses it: leave it out, or give the whole file", alias, alias))
		}
	}
	return Entry{}
}

// otherTransform converts the options of a transform that is not the Event Router. Its type is
// refused, and decides for the others.
func otherTransform(r *Result, p *property) Entry {
	text, _ := r.textOf("transforms", "")
	for _, alias := range splitList(text) {
		if option, is := strings.CutPrefix(p.name, "transforms."+alias+"."); is && option != "type" {
			return Entry{Verdict: Superseded, Why: "decided with transforms." + alias + ".type"}
		} else if is {
			return Entry{}
		}
	}
	return Entry{Verdict: Superseded, Why: "transforms does not list it"}
}

// converterClass converts the class of a converter, of which one had another name in Debezium 1.
func converterClass(_ *Result, p *property) Entry {
	if p.value != "io.debezium.converters.ByteBufferConverter" {
		return Entry{}
	}
	p.value = "io.debezium.converters.BinaryDataConverter"
	return Entry{Warning: true, Why: "BinaryDataConverter has taken its place in Debezium 2"}
}

// predicate converts predicate and negate of the Event Router. They are moot when the Event Router
// gets the records of all tables, and otherwise refused.
func predicate(r *Result, _ *property) Entry {
	name, _ := r.textOf("router.predicate", "")
	pattern, known := r.textOf("predicates."+name+".pattern", "")
	prefix, fixed := r.textOf("topic.prefix", "")
	list := r.tableList()
	if list == nil || !known || !fixed || !r.valueIs("predicates."+name+".type", "", topicNameMatches) {
		return refused(noPredicates)
	}
	tables, err := r.tableNames(list)
	moot := err == nil && prefix != ""
	for _, table := range tables {
		topic := prefix + "." + table
		matches, fault := debezium.MatchesWhole(pattern, topic)
		moot = moot && fault == nil && matches != r.valueIs("router.negate", "false", "true") && plainTopic().MatchString(topic)
	}
	if !moot {
		return refused(noPredicates)
	}
	return Entry{Verdict: Superseded, Why: "the Event Router gets the records of all tables here"}
}

const topicNameMatches = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"

// plainTopic matches the names of topics in which Debezium replaces nothing.
var plainTopic = lazy.Regexp(`^[A-Za-z0-9._-]+$`)

// writeOptions writes sink.compat, and lets the profile check the options. An option that the
// profile does not know is left out, because it may be a password. An option that it knows and does
// not take stays, so that the relay refuses to start until somebody has decided.
func (r *Result) writeOptions() {
	r.doc.set("sink.compat.profile", r.profile, "what Debezium makes of a row, byte for byte")
	plain, from := map[string]string{}, map[string]*property{}
	var names []string
	for _, p := range r.props {
		name, option := strings.CutPrefix(p.entry.Target, compatOptions+".")
		if !option {
			continue
		}
		names, from[name] = append(names, name), p
		if text, known := p.value.plain(); known {
			plain[name] = text
		} else if name == "topic.prefix" {
			// other options are checked against whether there is a prefix
			plain[name] = "known-at-the-start"
		}
	}
	_, faults := debezium.Parse(r.profile, plain)
	for _, fault := range faults {
		// of a converter's class, or the like
		of := slices.IndexFunc(faults, func(f debezium.Fault) bool {
			return fault.Unknown && !f.Unknown && strings.HasPrefix(fault.Option, f.Option+".")
		})
		switch p := from[fault.Option]; {
		case p != nil && of >= 0:
			p.change(Superseded, "decided with "+faults[of].Option)
		case p != nil && fault.Unknown:
			p.change(Cannot, r.unknown(p.name))
		case p != nil:
			p.change(Cannot, fault.Words)
		case r.byName[fault.Option] == nil: // otherwise that property has its verdict already
			r.absent(Cannot, fault.Option, compatOptions, fault.Words)
		}
		if fault.Unknown {
			delete(from, fault.Option)
		}
	}
	for _, name := range names {
		if p := from[name]; p != nil {
			r.doc.lines = append(r.doc.lines, line{[]string{"sink", "compat", "options", name}, quote(string(p.value)), origins(p)})
		}
	}
}
