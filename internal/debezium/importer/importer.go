// Package importer turns the configuration of a Debezium connector with the Outbox Event Router into ours: bytes of files in,
// a document and a report out. It opens nothing. Every property that comes in is in the report with a verdict.
package importer

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

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
	s := newSettings(ruleNames())
	if err := s.together(layers, worker); err != nil {
		return nil, err
	}
	b := decide(s)
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

// HasSecrets is true when a password would stand in what Write writes.
func (r *Result) HasSecrets() bool { return r.doc.secrets }

// Write writes the configuration. public leaves out passwords: a variable stands in their place.
func (r *Result) Write(w io.Writer, public bool) error { return r.doc.write(w, public) }

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
