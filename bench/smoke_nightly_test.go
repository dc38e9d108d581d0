//go:build nightly

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// TestSmoke measures every row with few events, and then a commit beside itself: each run of the
// relay ends with its history compared.
func TestSmoke(t *testing.T) {
	for base, want := range map[string]int{"": len(kinds) * len(reports), "HEAD": len(kinds)} {
		t.Run("base "+base, func(t *testing.T) {
			var out bytes.Buffer
			if err := bench(t.Context(), options{quick: true, base: base, only: regexp.MustCompile("")}, &out, t.Output()); err != nil {
				t.Fatal(err)
			}
			if tables := strings.Count("\n"+out.String(), "\n# "); tables != want {
				t.Errorf("there are %d reports, want %d:\n%s", tables, want, out.String())
			}
		})
	}
}
