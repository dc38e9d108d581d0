package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Fault is one thing that is wrong with the configuration: `cdc-relay.yaml:3:5: source.slot: what is wrong`.
type Fault struct {
	where place
	Key   string // the path of the key, "" for the file as a whole
	What  string
}

// Error is the fault on one line.
func (f *Fault) Error() string {
	var parts []string
	for _, part := range []string{f.where.String(), f.Key, f.What} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults is everything that is wrong, in the order of the file, then of the variables.
type Faults []*Fault

// Error is a single fault on its line, or a count and then one fault on a line.
func (fs Faults) Error() string {
	if len(fs) == 1 {
		return fs[0].Error()
	}
	lines := make([]string, 1, len(fs)+1)
	lines[0] = strconv.Itoa(len(fs)) + " faults"
	for _, f := range fs {
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n  ")
}

// Unwrap gives each fault to errors.As.
func (fs Faults) Unwrap() []error {
	errs := make([]error, len(fs))
	for i, f := range fs {
		errs[i] = f
	}
	return errs
}

// stop sorts the faults and wraps them with exit code 2; no faults are no error.
func (fs Faults) stop() error {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b *Fault) int { return a.where.compare(b.where) })
	return &outbox.Stop{Code: outbox.ExitUsage, Reason: "config", What: "the configuration cannot be used", Err: fs}
}

// place is where a value was written: a place in a file, a variable, or neither for a default.
type place struct {
	file         string
	line, column int
	variable     string
}

// String is file:line:column, the variable's name, or "".
func (p place) String() string {
	if p.variable != "" || p.file == "" {
		return p.variable
	}
	return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column)
}

// compare orders places of the file first, by line, then variables by name, then what was written nowhere.
func (p place) compare(q place) int {
	return cmp.Or(
		cmp.Compare(p.rank(), q.rank()),
		cmp.Compare(p.line, q.line),
		cmp.Compare(p.column, q.column),
		cmp.Compare(p.variable, q.variable),
	)
}

func (p place) rank() int {
	switch {
	case p.file != "":
		return 0
	case p.variable != "":
		return 1
	}
	return 2
}
