// Package importer turns the configuration of a Debezium connector with the Outbox Event Router
// into ours: the bytes of a file in, a document and a report out. It opens nothing. Every property
// that comes in is in the report with a verdict, which table.go has.
package importer

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// Verdict says whether the relay does what a property asks for.
type Verdict string

// The verdicts.
const (
	Honoured   Verdict = "honoured"   // a key of ours does what it did
	Superseded Verdict = "superseded" // nothing is set for it, and nothing is missing: Why says why
	Cannot     Verdict = "cannot"     // the relay would do something else than Debezium does
)

// verdicts are all of them, the worst first.
var verdicts = []Verdict{Cannot, Superseded, Honoured}

// Entry is one line of the report. It never holds the value of a property that may be secret.
type Entry struct {
	Verdict  Verdict
	Property string // as it is written in the file, or as it would be, where its absence matters
	File     string // "" for one that is in no file
	Target   string // our key
	Why      string
	Warning  bool // to be read before the relay runs
}

// Line is the entry as a line of the report.
func (e *Entry) Line() string {
	text := clean(e.Property)
	if e.File != "" {
		text += " (" + clean(e.File) + ")"
	}
	if e.Target != "" && e.Verdict != Cannot {
		text += " -> " + e.Target
	}
	if e.Why != "" {
		text += ": "
		if e.Warning {
			text += "WARNING: "
		}
		text += clean(e.Why)
	}
	return text
}

// property is one setting of the input.
type property struct {
	// as the table knows it: without the prefixes of Debezium Server and of Connect's producer
	name    string
	written string // as it stands in its file
	file    string
	value   value
	fault   string // why its value cannot be read: "" when it can
	entry   *Entry // its verdict
}

// Result is what a file becomes: verdicts in Entries, and the configuration.
type Result struct {
	Entries []*Entry

	profile string
	props   []*property
	byName  map[string]*property
	router  string // the name of the Outbox Event Router among the transforms; "" for none
	worker  bool   // the worker's file was given
	doc     document
}

// Import reads the file, and that of the connector's worker, if there is one. Its error is a file
// that has none of the forms that are read.
func Import(file Input, worker *Input) (*Result, error) {
	profile, pairs, err := readInput(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	r := &Result{profile: profile, byName: map[string]*property{}, worker: worker != nil}
	var shared []pair
	switch {
	case worker == nil:
	case !r.connect():
		return nil, errors.New("--worker-config is for a connector of Kafka Connect; Debezium Server has no worker")
	default:
		if shared, err = readWorker(*worker); err != nil {
			return nil, fmt.Errorf("%s: %w", worker.Name, err)
		}
		r.doc.from = ", " + worker.Name
	}
	r.doc.from = file.Name + r.doc.from
	r.findRouter(pairs)
	for i, list := range [][]pair{pairs, shared} {
		for _, one := range list {
			p := &property{name: r.tableName(one.name), written: one.name, file: file.Name}
			if i > 0 {
				p.name, p.file = workerName(one.name), worker.Name
			}
			// the options of a converter count together with its class
			if class, option := cutConverter(p.name); option && has(pairs, class) != (i == 0) {
				r.setVerdict(p, Superseded, "", "Connect reads it from the file that has "+class)
				continue
			}
			r.add(p, one.text)
		}
	}
	r.apply()
	return r, nil
}

func (r *Result) connect() bool { return r.profile == debezium.Connect }

// findRouter finds the router in the chain of transforms: its options get their names by it.
func (r *Result) findRouter(pairs []pair) {
	text := map[string]string{}
	for _, p := range pairs {
		text[strings.TrimPrefix(p.name, "debezium.")] = p.text
	}
	for _, alias := range splitList(text["transforms"]) {
		if r.router == "" && strings.TrimSpace(text["transforms."+alias+".type"]) == eventRouter {
			r.router = alias
		}
	}
}

const eventRouter = "io.debezium.transforms.outbox.EventRouter"

// serverPrefixes begin the names of Debezium Server, and what the table calls them; the first that
// fits counts.
var serverPrefixes = []struct{ server, table string }{
	{"debezium.sink.kafka.producer.", "producer."},
	{"debezium.source.", ""},
	{"debezium.sink.", "sink."},
	{"debezium.format.", "format."},
	{"debezium.transforms", "transforms"},
	{"debezium.predicates", "predicates"},
	{"debezium.", "debezium."},
	{"quarkus.", "quarkus."},
	{"", "other."},
}

// tableName is the name under which the table has a property: without the prefixes of the file.
func (r *Result) tableName(name string) string {
	if rest, ok := strings.CutPrefix(name, "producer.override."); ok && r.connect() {
		name = "producer." + rest
	}
	if !r.connect() {
		for _, p := range serverPrefixes {
			if rest, ok := strings.CutPrefix(name, p.server); ok {
				name = p.table + rest
				break
			}
		}
	}
	if option, ok := strings.CutPrefix(name, "transforms."+r.router+"."); ok && r.router != "" {
		return "router." + option
	}
	return name
}

// fileName turns a name of the table into the one that the file would have, for a property that is
// missing.
func (r *Result) fileName(name string) string {
	if r.connect() {
		return strings.TrimPrefix(name, "producer.")
	}
	for _, p := range serverPrefixes {
		if rest, ok := strings.CutPrefix(name, p.table); ok && p.table != "" {
			return p.server + rest
		}
	}
	return "debezium.source." + name
}

// workerName is the table's name of a worker's property: those that a connector has too count for
// it when it lacks them.
func workerName(name string) string {
	if name == "bootstrap.servers" {
		return "producer.bootstrap.servers"
	}
	for _, prefix := range []string{"producer.", "config.providers", "key.converter", "value.converter", "header.converter"} {
		if strings.HasPrefix(name, prefix) {
			return name
		}
	}
	return "worker." + name
}

// add resolves the references in a value, and keeps the property. If worker and connector have one
// of the same name, the connector's is kept.
func (r *Result) add(p *property, text string) {
	if first, twice := r.byName[p.name]; twice {
		in := ""
		if first.file != p.file {
			in = " in " + first.file
		}
		r.setVerdict(p, Superseded, "", "overridden by "+first.written+in)
		return
	}
	var err error
	if p.value = literal(text); !r.connect() {
		p.value, err = quarkus(text)
	}
	if err == nil {
		p.value, err = providers(p.value)
	}
	if err != nil {
		p.fault = err.Error()
	}
	r.props = append(r.props, p)
	r.byName[p.name] = p
}

// cutConverter is key.converter for key.converter.schemas.enable.
func cutConverter(name string) (class string, option bool) {
	part, _, option := strings.Cut(name, ".converter.")
	return part + ".converter", option && (part == "key" || part == "value" || part == "header")
}

// usable is a property that can be used.
func (r *Result) usable(name string) *property {
	if p := r.byName[name]; p != nil && p.fault == "" && (p.entry == nil || p.entry.Verdict != Cannot) {
		return p
	}
	return nil
}

// textOf is the text of a property, or what Debezium takes when it is not set; false when only the
// running relay could know it.
func (r *Result) textOf(name, byDefault string) (string, bool) {
	switch p := r.byName[name]; {
	case p == nil:
		return byDefault, true
	case p.fault != "":
		return "", false
	default:
		return p.value.plain()
	}
}

// valueIs compares a property without regard to case, as Debezium does for most of its names of
// modes.
func (r *Result) valueIs(name, byDefault, want string) bool {
	text, ok := r.textOf(name, byDefault)
	return ok && strings.EqualFold(strings.TrimSpace(text), want)
}

// setVerdict gives the verdict on a property.
func (r *Result) setVerdict(p *property, v Verdict, target, why string) {
	p.entry = &Entry{Verdict: v, Property: p.written, File: p.file, Target: target, Why: why}
	r.Entries = append(r.Entries, p.entry)
}

// refuse turns the verdict on a property into the one that stops the import.
func (p *property) refuse(why string) {
	if p.entry.Verdict != Cannot {
		*p.entry = Entry{Verdict: Cannot, Property: p.written, File: p.file, Why: why}
	}
}

// absent is a verdict on a property that should be there.
func (r *Result) absent(v Verdict, name, target, why string) *Entry {
	e := &Entry{Verdict: v, Property: r.fileName(name) + " (not set)", Target: target, Why: why}
	r.Entries = append(r.Entries, e)
	return e
}

// splitList splits at commas and trims, as Connect does.
func splitList(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Count is how many entries have the verdict.
func (r *Result) Count(v Verdict) (n int) {
	for _, e := range r.Entries {
		if e.Verdict == v {
			n++
		}
	}
	return n
}

// Report writes what became of each property: the warnings, then the others, the worst first.
func (r *Result) Report(w io.Writer) error {
	var out strings.Builder
	part := func(title string, of func(*Entry) bool) {
		lines := ""
		n := 0
		for _, e := range r.Entries {
			if of(e) {
				lines += "  " + e.Line() + "\n"
				n++
			}
		}
		if n > 0 {
			fmt.Fprintf(&out, "%s (%d)\n%s", title, n, lines)
		}
	}
	part("read these before the relay runs", func(e *Entry) bool { return e.Warning })
	for _, v := range verdicts {
		part(string(v), func(e *Entry) bool { return e.Verdict == v && !e.Warning })
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// theirSlot is the name of Debezium's slot, as commands show it.
func (r *Result) theirSlot() string {
	if name, known := r.textOf("slot.name", "debezium"); known && name != "" {
		return name
	}
	return "NAME" // a reference
}

// Write writes the configuration. A relay that is started on a new slot once Debezium is stopped
// begins after what was committed in between, so the file says what to do.
func (r *Result) Write(w io.Writer) error {
	slot := r.theirSlot()
	heading := []string{
		"Made by cdc-relay import debezium of " + r.doc.from + ".",
		"Do not stop Debezium: cdc-relay takeover --from-slot " + slot + " says when. Once that is complete: cdc-relay run.",
		"Slot " + slot + " is left then. It keeps WAL until it is dropped: cdc-relay takeover --from-slot " + slot + " --drop --yes.",
	}
	for _, e := range r.Entries {
		if e.Verdict == Cannot {
			heading = append(heading, "CANNOT: "+e.Line())
		}
	}
	return r.doc.write(w, heading)
}
