//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// SIGSTOP at the same, and a standby that takes over: the former leader changes nothing when it
// goes on. Every combination is in test/long.
func TestStoppedInTheRetryTable(t *testing.T) {
	t.Parallel()
	stand.FreezeAll(t, false)
}
