// Faults of a configuration and their places.

package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Fault is one thing that is wrong with the configuration: `cdc-relay.yaml:3:5: source.slot: what
// is wrong`.
type Fault struct {
	Where Place
	Key   string // the path of the key, "" for the file as a whole
	What  string
}

// Error is the fault on one line.
func (f *Fault) Error() string {
	var parts []string
	for _, part := range []string{f.Where.String(), f.Key, f.What} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults is everything that is wrong, in the order of the file, then of the variables.
type Faults []*Fault

// maxShown is how many faults are printed: a file that is not a configuration has thousands.
const maxShown = 50

// Error is a single fault on its line, or a count and then one fault on a line.
func (fs Faults) Error() string {
	if len(fs) == 1 {
		return fs[0].Error()
	}
	lines := make([]string, 1, len(fs)+1)
	lines[0] = strconv.Itoa(len(fs)) + " faults"
	for i, f := range fs {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(fs)-i))
			break
		}
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n  ")
}

// Stop sorts the faults and wraps them with exit code 2; no faults are no error.
func (fs Faults) Stop() error {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b *Fault) int { return a.Where.compare(b.Where) })
	return &event.Stop{Code: event.ExitUsage, Reason: "config", What: "the configuration cannot be used", Err: fs}
}

// Place is where a value was written: a place in a file, a variable, or neither for a default.
type Place struct {
	File         string
	Line, column int
	Variable     string
}

// String is file:line:column, the variable's name, or "".
func (p Place) String() string {
	if p.Variable != "" || p.File == "" {
		return p.Variable
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.column)
}

// compare orders places: first those in the file, by line, then variables by name, then values
// without a place.
func (p Place) compare(q Place) int {
	return cmp.Or(
		cmp.Compare(p.rank(), q.rank()),
		cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.column, q.column),
		cmp.Compare(p.Variable, q.Variable),
	)
}

func (p Place) rank() int {
	switch {
	case p.File != "":
		return 0
	case p.Variable != "":
		return 1
	}
	return 2
}
