//go:build nightly

// Many seeds of the crashes in the retry table.

package long

import (
	"flag"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

var retryTableSeeds = flag.Int("seeds", 20, "runs of each work of TestKilledInTheRetryTable")

func TestKilledInTheRetryTable(t *testing.T) {
	t.Parallel()
	stand.CrashSeeds(t, *retryTableSeeds)
}

func TestStoppedInTheRetryTable(t *testing.T) {
	t.Parallel()
	stand.FreezeAll(t, true)
}
