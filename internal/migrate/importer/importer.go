// Package importer turns the configuration of a Debezium connector with the Outbox Event Router
// into the relay's. It takes the bytes of a file and returns a document and a report; it opens no
// file itself, so that it can be tested without any. Every property of the file is in the report
// with a verdict, which comes from the rules in table.go.
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

// The verdicts of an Entry.
const (
	Honoured Verdict = "honoured" // a key of the relay's does what the property did
	// no key is set for it, and nothing is missing: Why gives the reason
	Superseded Verdict = "superseded"
	Cannot     Verdict = "cannot" // the relay would do something else than Debezium does
)

// verdicts are all verdicts, the worst first: the order of the report.
var verdicts = []Verdict{Cannot, Superseded, Honoured}

// Entry is one line of the report. It never holds the value of a property that may be secret.
type Entry struct {
	Verdict  Verdict
	Property string // as the file has it; for an absent one, as the file would have it
	File     string // "" for a property that is in no file
	Target   string // the relay's key
	Why      string
	Warning  bool // a person has to read it before the relay runs
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
	fault   string // why its value cannot be read; "" when it can
	entry   *Entry // its verdict
}

// Result is what Import makes of a file: the verdicts, and the configuration that Write writes.
type Result struct {
	Entries []*Entry

	profile string
	props   []*property
	byName  map[string]*property
	// the name of the Outbox Event Router among the transforms; "" when there is none
	router string
	worker bool     // the worker's file was given
	filled []string // the variables that were placeholders
	doc    document
}

// Import reads a file and, if it is not nil, that of the connector's worker. It fails when a file
// has a form that the importer does not read. A property that cannot be converted is no error: it
// gets the verdict Cannot.
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
			if class, option := cutConverter(p.name); option && r.connect() && has(pairs, class) != (i == 0) {
				r.setVerdict(p, Superseded, "", "Connect reads it from the file that has "+class)
				continue
			}
			r.add(p, one.text)
		}
	}
	r.apply()
	return r, nil
}

// connect reports whether the file is a connector of Kafka Connect, not of Debezium Server.
func (r *Result) connect() bool { return r.profile == debezium.Connect }

// findRouter finds the Outbox Event Router in the chain of transforms, because the names of its
// options begin with the name that the file gives it.
func (r *Result) findRouter(pairs []pair) {
	text := map[string]string{}
	for _, p := range pairs {
		text[r.tableName(p.name)] = p.text
	}
	for _, alias := range splitList(text["transforms"]) {
		if r.router == "" && strings.TrimSpace(text["transforms."+alias+".type"]) == eventRouter {
			r.router = alias
		}
	}
}

// eventRouter is the Java class of the Outbox Event Router.
const eventRouter = "io.debezium.transforms.outbox.EventRouter"

// serverPrefixes pair the prefixes of Debezium Server's names with those of the table in table.go.
// The first prefix that fits a name counts.
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
	} else if strings.HasPrefix(name, "producer.") && r.connect() { // the worker's alone
		name = "other." + name
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

// fileName returns the name that a property of the table would have in the file. It is for the
// report of properties that are missing.
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

// workerName returns the table's name of a property of the worker. Properties that a connector has
// too keep their name and count for the connector when it lacks them; others get the prefix worker.
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

// add resolves the references in a property's value and keeps the property. The connector's, which
// Import adds first, count before the worker's.
func (r *Result) add(p *property, text string) {
	var err error
	if p.value = literal(text); !r.connect() {
		p.value, err = quarkus(text)
	} else if !strings.HasPrefix(p.name, "router.") {
		for _, m := range placeholder().FindAllStringSubmatch(string(p.value), -1) {
			r.filled = append(r.filled, m[1])
		}
		p.value = value(placeholder().ReplaceAllString(string(p.value), "$${$1}"))
	}
	if err == nil {
		p.value, err = providers(p.value)
	}
	if err != nil {
		p.fault = err.Error()
	}
	switch first := r.byName[p.name]; {
	case first == nil:
	case first.file != p.file:
		r.setVerdict(p, Superseded, "", "overridden by "+first.written+" in "+first.file)
		return
	case first.value != p.value:
		r.setVerdict(p, Cannot, "", "is also set as "+first.written+", to something else: leave the one that counts")
		return
	default:
		r.setVerdict(p, Superseded, "", "the same as "+first.written)
		return
	}
	r.props = append(r.props, p)
	r.byName[p.name] = p
}

// cutConverter splits the name of a converter's option: key.converter.schemas.enable belongs to the
// class in key.converter. option is false for other names.
func cutConverter(name string) (class string, option bool) {
	part, _, option := strings.Cut(name, ".converter.")
	return part + ".converter", option && (part == "key" || part == "value" || part == "header")
}

// usable returns the property of this name, or nil when it is absent, cannot be read or has the
// verdict Cannot.
func (r *Result) usable(name string) *property {
	if p := r.byName[name]; p != nil && p.fault == "" && (p.entry == nil || p.entry.Verdict != Cannot) {
		return p
	}
	return nil
}

// textOf returns the text of a property, or byDefault, which Debezium takes, when it is not set. It
// returns false when the value cannot be read, or when only the running relay could know it.
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

// valueIs compares a property with a word without regard to case, as Debezium compares the names of
// most modes.
func (r *Result) valueIs(name, byDefault, want string) bool {
	text, ok := r.textOf(name, byDefault)
	return ok && strings.EqualFold(strings.TrimSpace(text), want)
}

// setVerdict gives a property its verdict and adds it to the report.
func (r *Result) setVerdict(p *property, v Verdict, target, why string) {
	p.entry = &Entry{Verdict: v, Property: p.written, File: p.file, Target: target, Why: why}
	r.Entries = append(r.Entries, p.entry)
}

// change changes the verdict on a property when a later check finds a fault. A verdict that is
// Cannot already stays, with its reason.
func (p *property) change(v Verdict, why string) {
	if p.entry.Verdict != Cannot {
		*p.entry = Entry{Verdict: v, Property: p.written, File: p.file, Why: why}
	}
}

// absent adds an entry about a property that the file does not have.
func (r *Result) absent(v Verdict, name, target, why string) *Entry {
	e := &Entry{Verdict: v, Property: r.fileName(name) + " (not set)", Target: target, Why: why}
	r.Entries = append(r.Entries, e)
	return e
}

// splitList splits at commas, trims the items and drops empty ones, as Connect does.
func splitList(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Count returns how many entries have the verdict.
func (r *Result) Count(v Verdict) (n int) {
	for _, e := range r.Entries {
		if e.Verdict == v {
			n++
		}
	}
	return n
}

// Report writes a line for each entry: first those with a warning, then the others by verdict, the
// worst first.
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

// theirSlot returns the name of Debezium's slot, for the takeover command. It returns NAME when the
// name is a reference or empty.
func (r *Result) theirSlot() string {
	if name, known := r.textOf("slot.name", "debezium"); known && name != "" {
		return name
	}
	return "NAME" // a reference, or empty
}

// Write writes the configuration. Its heading tells how to take over: a relay that starts on a new
// slot after Debezium was stopped would miss the events that were committed in between.
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
