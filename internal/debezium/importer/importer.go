// Package importer turns the configuration of a Debezium connector with the Outbox Event Router into ours: bytes of files in,
// a document and a report out. It opens nothing. Every property that comes in is in the report with a verdict.
package importer

import (
	"errors"
	"fmt"
	"strings"
)

// Input is one file: its name, as it is shown, and what is in it.
type Input struct {
	Name    string
	Content []byte
}

// Verdict is what became of a property.
type Verdict string

// The verdicts.
const (
	Honoured   Verdict = "honoured"   // it means the same here, under its own name
	Mapped     Verdict = "mapped"     // another key of ours does what it did
	Superseded Verdict = "superseded" // nothing is set for it, and nothing is missing: Why says why
	Cannot     Verdict = "cannot"     // the relay would do something else than Debezium does
)

// Verdicts are all of them, the worst first.
var Verdicts = []Verdict{Cannot, Superseded, Mapped, Honoured}

// Entry is one line of the report. It never holds the value of a property that may be secret.
type Entry struct {
	Verdict  Verdict `json:"verdict"`
	Property string  `json:"property"`         // as it is written in the file, or as it would be, where its absence matters
	File     string  `json:"file,omitempty"`   // "" for one that is in no file
	Target   string  `json:"target,omitempty"` // our key
	Why      string  `json:"why,omitempty"`
	Warning  bool    `json:"warning,omitempty"` // to be read before the relay runs
}

// Result is what the files become.
type Result struct {
	Profile string // of sink.compat
	Entries []Entry
	doc     document
}

// Count is how many entries have the verdict.
func (r *Result) Count(v Verdict) int {
	n := 0
	for _, e := range r.Entries {
		if e.Verdict == v {
			n++
		}
	}
	return n
}

// Import reads the files, which are the layers of one configuration, and the worker's file, if there is one. Its error is a
// file that cannot be read as any of the forms, or files that do not belong together.
func Import(files []Input, worker *Input) (*Result, error) {
	if len(files) == 0 {
		return nil, errors.New("no file is given")
	}
	layers := make([]layer, len(files))
	for i, f := range files {
		read, err := readLayer(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		layers[i] = read
	}
	b := newBuilder()
	if err := b.together(layers, worker); err != nil {
		return nil, err
	}
	b.decide()
	names := make([]string, 0, len(files)+1)
	for _, f := range files {
		names = append(names, f.Name)
	}
	if worker != nil {
		names = append(names, worker.Name)
	}
	r := &Result{Profile: b.profile, Entries: b.entries, doc: b.doc}
	r.doc.heading = r.heading(names, b.next())
	return r, nil
}

// next is what to do with the file. A slot of another plugin is told apart here: a relay that is started on a new slot once
// Debezium is stopped begins behind what was committed in between.
func (b *builder) next() string {
	if !b.pgoutput() {
		return "Do not stop Debezium: cdc-relay takeover --from-slot " + b.slot() + " says when. Once that is complete: cdc-relay run."
	}
	return "Once Debezium is stopped: cdc-relay init, cdc-relay check, cdc-relay run."
}

// heading is what stands above the configuration: what it was made of, and what it lacks.
func (r *Result) heading(files []string, next string) []string {
	lines := []string{
		"Made by cdc-relay import debezium of " + strings.Join(files, ", ") + ".",
		next,
	}
	for _, e := range r.Entries {
		if e.Verdict == Cannot {
			lines = append(lines, "CANNOT: "+e.line())
		}
	}
	return lines
}
