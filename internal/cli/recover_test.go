package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
)

// Without a terminal the copy is a line every ten seconds, with what is left.
func TestCopyProgress(t *testing.T) {
	var out bytes.Buffer
	p := copyProgress{w: &out, began: time.Now().Add(-24 * time.Second)}
	p.show(1_200_000, 3_600_000)
	p.show(1_200_001, 3_600_000)
	if got := out.String(); got != "copied 1,200,000 of 3,600,000 rows, 48s left\n" {
		t.Errorf("it says %q", got)
	}
}

// The report says what is certain, what may be, and what is lost.
func TestRecoveryReport(t *testing.T) {
	for name, c := range map[string]struct {
		report repair.Report
		says   []string
		not    string
	}{
		"a gap": {
			repair.Report{Recovered: 1200, Unknown: 3, Held: 1, LeftOut: 1, Order: "commit timestamps", Named: []string{"y"}, FromLSN: "0/1", UntilLSN: "0/9", Lost: []string{"x"}},
			[]string{"recovered: 1,200 rows", "unknown: 3 rows of them", "already held: 1 row,", "left out: 1 row that does not meet", "note: y", "from 0/1 to 0/9", "cannot be recovered: x"},
			"newer events",
		},
		"an accepted gap": {
			repair.Report{Recovered: 1, NewerSent: true, OpenGaps: 2},
			[]string{"recovered: 1 row ", "newer events were sent before these", "2 accepted gaps of this slot are still open"},
			"cannot be recovered",
		},
		"a dry run": {
			repair.Report{DryRun: true, Recovered: 2, Held: 2, Order: "unknown", FromLSN: "0/1"},
			[]string{"nothing is changed: 2 rows", "order: unknown", "up to 2 rows", "from 0/1 to the start of the new slot"},
			"recovered:",
		},
	} {
		var out bytes.Buffer
		printRecovery(&out, c.report)
		for _, want := range c.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: it does not say %q:\n%s", name, want, out.String())
			}
		}
		if strings.Contains(out.String(), c.not) {
			t.Errorf("%s: it says %q:\n%s", name, c.not, out.String())
		}
	}
}
