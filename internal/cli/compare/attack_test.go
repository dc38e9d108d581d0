package compare

import (
	"bytes"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
)

// Differences carry ids, names of headers and excerpts of messages.
func TestTerminalEscapesInDifferences(t *testing.T) {
	var d difference
	sentinel.FillWithAttack(&d)
	var out, errs bytes.Buffer
	r := &comparison{f: &compareFlags{}, out: &out, errs: &errs}
	r.matcher = *fresh(matcher{}, r.found)
	r.matcher.NoID[theirs], r.f.idHeader = 1, sentinel.TerminalAttack
	r.found(d)
	if err := r.report(false, nil); err == nil {
		t.Error("no difference was reported")
	}
	sentinel.CheckPrinted(t, "differences", out.String())
}
