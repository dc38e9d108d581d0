package fault

import (
	"flag"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// seeds may be raised to look deeper: go test ./test/fault -run TestKilledInTheSiding -args -seeds 100. Twenty are in test/long.
var seeds = flag.Int("seeds", 4, "runs of each work of TestKilledInTheSiding")

// SIGKILL while the relay parks, dead-letters, replays, feeds, and cuts over to what is new.
func TestKilledInTheSiding(t *testing.T) {
	t.Parallel()
	stand.CrashSeeds(t, *seeds)
}

// SIGSTOP at the same, and a standby that takes over: the former leader changes nothing when it goes on. Every combination is in
// test/long.
func TestStoppedInTheSiding(t *testing.T) {
	t.Parallel()
	stand.FreezeAll(t, false)
}
