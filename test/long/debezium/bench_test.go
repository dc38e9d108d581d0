//go:build nightly

package debezium

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The benchmark beside Debezium Server works: with few events, whose numbers say nothing, but whose
// histories are checked.
func TestBench(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "bench")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./bench")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for sink, want := range map[string]struct {
		rows   int // that are judged
		closed string
	}{
		"rabbitmq": {7, "lost for ever | 0 events |"},
		"kafka":    {6, "## In short"},
	} {
		t.Run(sink, func(t *testing.T) {
			// a dozen starts of Java on a machine with much else to do
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, binary, "-debezium", "-quick", "-sink", sink, "-only", "^(drain-100|live|unbound)$")
			cmd.Dir = "../../.."
			// it ends what it has started
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			cmd.WaitDelay = 30 * time.Second
			var progress strings.Builder
			cmd.Stderr = &progress
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, progress.String())
			}
			if rows := strings.Count(string(out), "| smoke |\n"); rows != want.rows || !strings.Contains(string(out), want.closed) {
				t.Errorf("the report has %d rows that are judged, want %d and %q:\n%s", rows, want.rows, want.closed, out)
			}
		})
	}
}
