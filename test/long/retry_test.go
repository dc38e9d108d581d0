//go:build nightly

package long

import (
	"flag"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

var sidingSeeds = flag.Int("seeds", 20, "runs of each work of TestKilledInTheSiding")

func TestKilledInTheSiding(t *testing.T) {
	t.Parallel()
	stand.CrashSeeds(t, *sidingSeeds)
}

func TestStoppedInTheSiding(t *testing.T) {
	t.Parallel()
	stand.FreezeAll(t, true)
}
