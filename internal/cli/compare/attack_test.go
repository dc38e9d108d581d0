package compare

import (
	"bytes"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
	"github.com/cdc-relay/cdc-relay/internal/printable/printabletest"
)

// Differences carry ids, names of headers and excerpts of messages.
func TestTerminalEscapesInDifferences(t *testing.T) {
	var d compare.Difference
	printabletest.Fill(&d)
	var out, errs bytes.Buffer
	r := &comparison{f: &compareFlags{limit: 10}, out: &out, line: output.Progress{W: &errs}, notes: []string{printabletest.Attack}}
	r.matcher = compare.New(compare.Options{}, r.found)
	r.found(d)
	r.note(printabletest.Attack)
	if err := r.report(false, nil); err == nil {
		t.Error("no difference was reported")
	}
	printabletest.Check(t, "differences", out.String())
	printabletest.Check(t, "notes", errs.String())
}
