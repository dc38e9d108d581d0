//go:build nightly

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// A commit beside itself, with few events.
func TestSmokeOfAComparison(t *testing.T) {
	for sink := range brokers {
		t.Run(sink, func(t *testing.T) {
			var out bytes.Buffer
			opt := options{sink: sink, quick: true, base: "HEAD", only: regexp.MustCompile("")}
			if err := run(t.Context(), opt, &out, t.Output()); err != nil {
				t.Fatal(err)
			}
			if figures := strings.Count(out.String(), " % |"); figures != 11 {
				t.Errorf("the report has %d figures, want 11:\n%s", figures, out.String())
			}
		})
	}
}

// TestSmoke measures every kind of row with few events: each run of the relay ends with its history
// checked.
func TestSmoke(t *testing.T) {
	for name, want := range map[string]struct{ rows, costs int }{
		"rabbitmq": {rows: 22, costs: 9},
		"kafka":    {rows: 16, costs: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			opt := options{sink: name, quick: true, only: regexp.MustCompile("")}
			if err := run(t.Context(), opt, &out, t.Output()); err != nil {
				t.Fatal(err)
			}
			rows := strings.Count(out.String(), "| smoke |\n")
			costs := strings.Count(out.String(), "µs CPU per event, peak")
			if rows != want.rows || costs < want.costs {
				t.Errorf("the report has %d rows with a must and %d with the costs, want %d and %d:\n%s", rows, costs, want.rows, want.costs, out.String())
			}
		})
	}
}
