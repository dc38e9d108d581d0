package relay

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cdc-relay/cdc-relay/internal/guard"
)

// The disk guard ends the calls that are out, and what comes is deferred, also by a lane that is
// made later. Afterwards calls are made again.
func TestGuardEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &shelf{}
		failed := 0
		b := start(t, 2, Config{RetryTable: table, Guard: true, Hooks: Hooks{Unavailable: func(int, int, error) { failed++ }}})
		said := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := strings.Join(table.news(), "; "); got != want {
				t.Errorf("the retry table was told %q, want %q", got, want)
			}
		}
		b.commitEvents(t, "a")
		synctest.Wait()
		if calls := b.sink.arrived(); len(calls) != 1 {
			t.Fatalf("%d calls are out", len(calls))
		}
		b.Guard(true)
		said("defers a-0")
		b.commitEvents(t, "a")
		said("defers a-0")
		b.sink.lanes = 3 // a key of the third lane comes
		for _, key := range []string{"b", "c", "d", "e", "f"} {
			b.commitEvents(t, key)
			synctest.Wait()
		}
		if n := len(b.sink.arrived()); n != 0 {
			t.Errorf("%d calls are made while the guard is on", n)
		}
		flow := b.Flow()
		if flow.Deferred != 7 || flow.DeferredBytes < 7*guard.RowOverhead || flow.Waiting != 7 || flow.Confirmed != 0 || failed != 0 {
			t.Errorf("the guard sees %+v, %d calls have failed", flow, failed)
		}
		b.Guard(false)
		b.commitEvents(t, "new")
		synctest.Wait()
		if calls := b.sink.arrived(); len(calls) != 1 {
			t.Errorf("%d calls are out after the guard", len(calls))
		}
	})
}
