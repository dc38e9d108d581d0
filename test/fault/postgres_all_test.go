//go:build testall

package fault

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A dead letter that was discarded and purged stays away when PostgreSQL crashes and sends its
// transaction again: its position is still known.
func TestPurgedDeadLetterStaysAwayAfterACrash(t *testing.T) {
	stand.Parallel(t)
	pg := ownPostgres(t)
	s := stand.On(t, pg, stand.SharedRabbitMQ(t))
	s.Route()
	r := s.StartWatched()
	s.SQL(`CHECKPOINT`)
	dead := event(s, "a", 1, s.Poison(1, 0))
	s.AwaitRows(checker.Open, 1)
	n := number(s, dead)
	operated(s, "dead-letters", "discard", n)
	operated(s, "dead-letters", "purge", n)
	after := event(s, "a", 2, load.Kind{})
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{after}))
	s.Reported()
	before := s.RetryTableRows()
	_, err := pg.Stop("immediate")
	s.Must(err)
	s.Postgres.Cut()
	s.Must(pg.Start(s.Context()))
	again := s.Unproven()
	s.Must(s.Postgres.Restore())
	s.Leads(s.Ready(r))
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, "a", 3, load.Kind{})}))
	s.Reported()
	if v := s.CheckHistory(checker.History{MaxDuplicates: again}); len(v.Discarded) != 1 {
		t.Errorf("discarded are %v, want the dead letter", v.Discarded)
	}
	if after := s.RetryTableRows(); !slices.Equal(before, after) {
		t.Errorf("the rows of the retry table have changed:\n%.2000q\n%.2000q", before, after)
	}
	stopped(s, r, 0)
}

// A relay that has nothing to do writes nothing, with any of its parts: no statement takes a
// transaction number, which even a row lock or a sequence's value would cost.
func TestIdleProcessWritesNothing(t *testing.T) {
	stand.Parallel(t)
	s := stand.On(t, ownPostgres(t), stand.SharedRabbitMQ(t))
	s.Route()
	s.SQL(`ALTER SYSTEM SET autovacuum = off`) // it takes some
	s.SQL(`SELECT pg_reload_conf()`)
	r := s.StartWatched()
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, "a", 1, load.Kind{})}))
	s.Reported()
	next := func() (xid string) {
		s.Query([]any{&xid}, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text`)
		return xid
	}
	// what is done each minute is done for the first time some moments after the start
	before := ""
	await.Until(t, "nothing is written for a second", func() bool {
		was := next()
		s.AwaitReports(time.Second)
		before = next()
		return before == was
	})
	s.AwaitReports(12 * time.Second) // twice what each part waits, but for what is done each minute
	if after := next(); after != before {
		t.Errorf("an idle relay has written: the next transaction is %s, it was %s", after, before)
	}
	stopped(s, r, 0)
}
