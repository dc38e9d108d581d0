// Package importer turns the configuration of a Debezium connector with the Outbox Event Router
// into ours: bytes of files in, a document and a report out. It opens nothing. Every property that
// comes in is in the report with a verdict.
package importer

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/rules"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

// Result is what the files become: verdicts in Entries, and the configuration.
type Result struct{ *rules.Builder }

// Count is how many entries have the verdict.
func (r *Result) Count(v output.Verdict) int {
	n := 0
	for _, e := range r.Entries {
		if e.Verdict == v {
			n++
		}
	}
	return n
}

// Import reads the files, which are the layers of one configuration, and the worker's file, if
// there is one. Its error is a file that cannot be read as any of the forms, or files that do not
// belong together.
func Import(files []read.Input, worker *read.Input) (*Result, error) {
	if len(files) == 0 {
		return nil, errors.New("no file is given")
	}
	layers := make([]read.File, len(files))
	for i, f := range files {
		layer, err := read.Layer(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		layers[i] = layer
	}
	s := settings.New(rules.Names())
	if err := s.Load(layers, worker); err != nil {
		return nil, err
	}
	b := rules.Apply(s)
	names := make([]string, 0, len(files)+1)
	for _, f := range files {
		names = append(names, f.Name)
	}
	if worker != nil {
		names = append(names, worker.Name)
	}
	b.Doc.Heading = []string{"Made by cdc-relay import debezium of " + strings.Join(names, ", ") + ".", b.Next()}
	for _, e := range b.Entries {
		if e.Verdict == output.Cannot {
			b.Doc.Heading = append(b.Doc.Heading, "CANNOT: "+e.Line())
		}
	}
	return &Result{b}, nil
}

// Write writes the configuration. public leaves out passwords: a variable stands in their place.
func (r *Result) Write(w io.Writer, public bool) error { return r.Doc.Write(w, public) }
