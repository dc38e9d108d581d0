//go:build nightly

package alerts

import "testing"

// What takes a simulated day takes promtool much longer than all else.
func TestRulesOverDays(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", dir+"cdc-relay.rules.days.test.yml")
}
