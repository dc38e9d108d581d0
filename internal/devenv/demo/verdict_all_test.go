//go:build testall

package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
)

func goodOutcome() outcome {
	return outcome{
		Verdict: checker.Verdict{Committed: 11842, Delivered: 11842, Duplicates: 97, Redelivered: 12, Replayed: []string{"poison"}, MaxDuplicates: -1},
		words:   (&rabbitMQ{}).words(),
		keys:    keys, rolledBack: 612, samples: 1044, away: 9830 * time.Millisecond,
		up:      latency{count: 8000, p50: 1200 * time.Microsecond, p99: 4 * time.Millisecond, max: time.Second},
		outages: []latency{{count: 3842, max: 10100 * time.Millisecond}, {count: 2790, max: 7300 * time.Millisecond}},
		died:    42 * time.Millisecond, most: 2600, waited: 6900 * time.Millisecond,
	}
}

// onKafka is an outcome of the other broker, where duplicates are no more allowed than losses.
func onKafka(o *outcome, duplicates int) {
	o.words = (&kafka{}).words()
	o.Duplicates, o.MaxDuplicates, o.Redelivered = duplicates, 0, 0
}

// TestVerdict: a good one passes on both brokers, and each fault is shown, and fails.
func TestVerdict(t *testing.T) {
	id := []string{"id"}
	for name, tc := range map[string]struct {
		spoil func(*outcome)
		fault string // "" for none
	}{
		"good":                {func(*outcome) {}, ""},
		"good on Kafka":       {func(o *outcome) { onKafka(o, 0) }, ""},
		"lost":                {func(o *outcome) { o.Lost = id }, "✗ LOST of 11,842 committed events: 1"},
		"out of order":        {func(o *outcome) { o.OutOfOrder = id }, "✗ events OUT OF ORDER: 1"},
		"another position":    {func(o *outcome) { o.Moved = id }, "✗ events OUT OF ORDER: 1"},
		"phantom":             {func(o *outcome) { o.Phantom = id }, "✗ events delivered that were NEVER COMMITTED: 1"},
		"altered":             {func(o *outcome) { o.Altered = id }, "✗ events ALTERED on the way: 1"},
		"early report":        {func(o *outcome) { o.FlushAheadOfDelivery = id }, "✗ events CONFIRMED to PostgreSQL before the broker had them: 1"},
		"deferred still":      {func(o *outcome) { o.Deferred = id }, "✗ events LEFT in the retry table: 1"},
		"dead still":          {func(o *outcome) { o.Dead = id }, "✗ events LEFT in the retry table: 1"},
		"duplicates on Kafka": {func(o *outcome) { onKafka(o, 3) }, "✗ DUPLICATES though the relay lived: 3"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			d := &demo{Console: console.To(&out), found: goodOutcome()}
			tc.spoil(&d.found)
			err := d.conclude(t.Context())
			bad := tc.fault != ""
			if (err != nil) != bad || strings.Contains(out.String(), "PASSED") == bad || strings.Contains(out.String(), "FAILED") != bad ||
				strings.Contains(out.String(), "✗") != bad || !strings.Contains(out.String(), tc.fault) {
				t.Errorf("the verdict is %v:\n%s", err, &out)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(line); n > 80 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}
