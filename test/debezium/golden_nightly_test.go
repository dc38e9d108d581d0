//go:build nightly

package debezium

import "testing"

// TestSameAsDebezium of all other groups: a relay for each.
func TestEachGroupOfARelayIsSameAsDebezium(t *testing.T) {
	sameAsDebezium(t, others())
}
