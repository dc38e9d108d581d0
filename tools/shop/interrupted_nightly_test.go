//go:build nightly

package main

import (
	"errors"
	"strings"
	"testing"
)

// TestInterruptedWhileStarting of the demo is in each run.
func TestInterruptedShop(t *testing.T) {
	t.Parallel()
	p := startShop(t, "rabbitmq", length{})
	p.out.Await(t, "PostgreSQL answers")
	if err := p.interrupt(); !errors.Is(err, errInterrupted) {
		t.Fatalf("run returned %v:\n%s", err, p.out)
	}
	if !strings.Contains(p.out.String(), "Interrupted: stopping everything.") || strings.Contains(p.out.String(), "PASSED") {
		t.Errorf("output is:\n%s", p.out)
	}
}
