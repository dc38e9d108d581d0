package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/display"
	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/golden"
)

func goodOutcome() *outcome {
	return &outcome{
		Verdict: checker.Verdict{Committed: 11842, Delivered: 11842, Duplicates: 97, Redelivered: 12, Replayed: []string{"poison"}, MaxDuplicates: -1},
		words:   (&rabbitMQ{}).words(),
		keys:    keys, rolledBack: 612, samples: 1044, away: 9830 * time.Millisecond,
		up:         display.Latency{Count: 8000, P50: 1200 * time.Microsecond, P99: 4 * time.Millisecond, Max: time.Second},
		outages:    []display.Latency{{Count: 3842, Max: 10100 * time.Millisecond}, {Count: 2790, Max: 7300 * time.Millisecond}},
		retryTable: retryTable{died: 42 * time.Millisecond, most: 2600, waited: 6900 * time.Millisecond},
	}
}

func badOutcome() *outcome {
	o := goodOutcome()
	o.Delivered -= 2
	o.Lost, o.OutOfOrder, o.Moved = []string{"id1", "id2"}, []string{"id3"}, []string{"id4"}
	o.Phantom, o.Altered, o.FlushAheadOfDelivery = []string{"id5"}, []string{"id6"}, []string{"id7"}
	o.Deferred, o.Dead = []string{"id8"}, []string{"id9"}
	return o
}

// onKafka is an outcome of the other broker, where duplicates are no more allowed than losses.
func onKafka(o *outcome, duplicates int) *outcome {
	o.words = (&kafka{}).words()
	o.Duplicates, o.MaxDuplicates, o.Redelivered = duplicates, 0, 0
	return o
}

func TestVerdict(t *testing.T) {
	for name, o := range map[string]*outcome{
		"good": goodOutcome(), "bad": badOutcome(), "kafka": onKafka(goodOutcome(), 0), "kafka-twice": onKafka(goodOutcome(), 3),
	} {
		lines := o.lines(false)
		golden.Narrow(t, lines)
		golden.Compare(t, "verdict-"+name+".golden", golden.Text(lines))
	}
	golden.Compare(t, "verdict-colours.golden", golden.Text(badOutcome().lines(true)))
}

func TestBadVerdictIsAnError(t *testing.T) {
	var out strings.Builder
	s := &stage{stdout: &out, cast: cast{broker: &rabbitMQ{}}}
	if err := s.conclude(t.Context(), goodOutcome()); err != nil || !strings.Contains(out.String(), "PASSED") {
		t.Errorf("a good verdict gives %v:\n%s", err, &out)
	}
	for name, spoil := range map[string]func(*outcome){
		"lost":         func(o *outcome) { o.Lost = []string{"id"} },
		"out of order": func(o *outcome) { o.OutOfOrder = []string{"id"} },
		"phantom":      func(o *outcome) { o.Phantom = []string{"id"} },
		"deferred":     func(o *outcome) { o.Deferred = []string{"id"} },
		"dead":         func(o *outcome) { o.Dead = []string{"id"} },
		"twice":        func(o *outcome) { onKafka(o, 1) },
	} {
		out.Reset()
		o := goodOutcome()
		spoil(o)
		if err := s.conclude(t.Context(), o); err == nil || !strings.Contains(out.String(), "FAILED") || strings.Contains(out.String(), "PASSED") {
			t.Errorf("%s gives %v:\n%s", name, err, &out)
		}
	}
}
