// Package sim runs the real line, retry table and mirror of two processes in a bubble, on a
// PostgreSQL, a broker and a store in memory: everything that comes from outside, its delays and
// its faults are drawn from a seed. What the world then holds is compared at every step with what
// the invariants allow.
package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// go test ./test/sim -args -seed 4711 plays one seed and prints its history; -seeds and -first say
// which ones are played.
var (
	seeds = flag.Int("seeds", usual, "how many seeds TestSeeds plays")
	first = flag.Uint64("first", 1, "the first of them")
	one   = flag.Uint64("seed", 0, "play this seed alone; a seed that fails does so again in nearly all runs")
	all   = flag.Bool("all", false, "print the history of all ordering groups, not only of the one at fault")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func play(t *testing.T, seed uint64) (failure string) {
	synctest.Test(t, func(*testing.T) { failure = newPlan(seed).run() })
	return failure
}

func TestSeeds(t *testing.T) {
	if *one != 0 {

		if failure := play(t, *one); failure != "" {
			t.Fatalf("seed %d: %s", *one, failure)
		}
		return
	}
	began := time.Now()
	var next, failed atomic.Uint64
	next.Store(*first)
	t.Cleanup(func() {
		n := next.Load() - *first
		t.Logf("%d seeds in %s", n, time.Since(began).Round(time.Millisecond))
	})
	for n := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			for failed.Load() == 0 {
				seed := next.Add(1) - 1
				if seed >= *first+uint64(*seeds) {
					return
				}
				if failure := play(t, seed); failure != "" {
					failed.Add(1)
					t.Fatalf("seed %d (again: go test ./test/sim -args -seed %d): %s", seed, seed, failure)
				}
			}
		})
	}
}
