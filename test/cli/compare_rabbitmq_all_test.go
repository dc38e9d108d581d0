//go:build testall

package cli

import (
	"os"
	"strings"
	"testing"
)

// By a header with the key, the order of each key is compared and not that of the routing key.
// Stopped by a signal it tells what was found, and nothing of what was on its way.
func TestCompareByKeyUntilInterrupted(t *testing.T) {
	t.Parallel()
	c := startComparing(t, "--lag", "2s", "--for", "10m", "--key-header", "key")
	c.send(c.theirs, "k", message("a1", "v", "key", "a"), message("b1", "v", "key", "b"), message("alone", "v", "key", "c"))
	c.send(c.ours, "k", message("b1", "v", "key", "b"), message("a1", "v", "key", "a"))
	// A third pair shows that the first two were taken.
	c.send(c.theirs, "k", message("x", "v", "key", "d"))
	c.send(c.ours, "k", message("x", "other", "key", "d"))
	eventually(t, func() string { return lacks(c.text(c.out), "x value: differs") })
	must(t, c.cmd.Process.Signal(os.Interrupt))
	<-c.done
	out := c.text(c.out)
	for _, want := range []string{"compared     3 events, then interrupted: 2 equal, 1 not\n", "not counted  1 event of theirs", "differences  value: 1\n"} {
		if why := lacks(out, want); why != "" {
			t.Error(why)
		}
	}
	if strings.Contains(out, "order") || c.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit %d: %s", c.cmd.ProcessState.ExitCode(), out)
	}
}
