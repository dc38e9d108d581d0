//go:build testall

package alerts

import (
	"os/exec"
	"strings"
	"testing"
)

// promtool fails the test with what promtool says when that is not content.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s (make deps installs it): %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", shipped)
	promtool(t, "check", "config", dir+"prometheus.yml")
	promtool(t, "test", "rules", unitTests)
}
