package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// SIGKILL while the relay defers, dead-letters, replays and feeds: each once, in one of the states
// of its statement. What the order machine then does, and how it returns to direct delivery, is
// played by test/sim; all states, and many seeds, are in test/long.
func TestKilledInTheRetryTable(t *testing.T) {
	t.Parallel()
	stand.CrashEach(t)
}
