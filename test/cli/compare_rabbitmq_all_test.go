//go:build testall

package cli

import (
	"os"
	"strings"
	"testing"
)

// The order of each routing key is compared. Stopped by a signal it tells what was found, and
// nothing of what was on its way.
func TestCompareUntilInterrupted(t *testing.T) {
	t.Parallel()
	c := startComparing(t, "--lag", "2s", "--for", "10m")
	c.send(c.theirs, "a", message("a1", "v"))
	c.send(c.theirs, "b", message("b1", "v"))
	c.send(c.theirs, "c", message("alone", "v"))
	c.send(c.ours, "b", message("b1", "v"))
	c.send(c.ours, "a", message("a1", "v"))
	// A third pair shows that the first two were taken.
	c.send(c.theirs, "d", message("x", "v"))
	c.send(c.ours, "d", message("x", "other"))
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
