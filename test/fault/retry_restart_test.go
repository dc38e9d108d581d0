package fault

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What the retry table knows holds over a crash: by the position of the event, whatever the
// configuration says now.

// unreported keeps the relay from reporting anything more until let go: it cannot raise its flush
// limit.
func unreported(s *stand.Stand) (let func()) {
	s.T.Helper()
	conn, err := pgx.Connect(s.Context(), s.DB)
	s.Must(err)
	_, err = conn.Exec(s.Context(), `BEGIN`)
	s.Must(err)
	// A lock of the row would give the transaction an id, and each new slot of the server would
	// wait for its end.
	_, err = conn.Exec(s.Context(), `LOCK TABLE cdc_relay.progress IN SHARE MODE`)
	s.Must(err)
	let = func() { _ = conn.Close(s.Context()) } // a second time it does nothing
	s.T.Cleanup(let)
	return let
}

// e1 is a dead letter and e2 of its key is confirmed, and none of it is reported when the relay
// crashes: e1 is read again, and is not published, nor does it hold e2.
func TestDeadIsNotPublishedAfterACrash(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		r := s.StartWatched()
		s.Deliver(30)
		s.Reported()
		let := unreported(s)
		e1 := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitRows(checker.Open, 1)
		e2 := event(s, "a", 2, load.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{e2}))
		s.Must(r.Kill())
		let()
		s.Gone()
		before := s.RetryTableRows()
		bound := s.Unreported()
		if bound != 1 {
			s.T.Errorf("%d events may arrive twice, want e2 alone", bound)
		}
		s.Antidote() // if it were published now, it would arrive
		r = s.Start()
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, "a", 3, load.Kind{})}))
		v := s.CheckHistory(checker.History{MaxDuplicates: bound, MaxDead: 1})
		if v.Duplicates != s.Repeats(1) || !slices.Equal(v.Dead, []string{e1}) {
			s.T.Errorf("%d duplicates and the dead letters %v, want %d and e1", v.Duplicates, v.Dead, s.Repeats(1))
		}
		if after := s.RetryTableRows(); !slices.Equal(before, after) {
			s.T.Errorf("the rows of the retry table have changed:\n%.2000q\n%.2000q", before, after)
		}
		stopped(s, r, 0)
	})
}

// The retry table's own connections are lost, again and again, while it defers and while it feeds;
// the stream's is not.
func TestConnectionOfTheRetryTableLost(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.Retry = "backoff: 100ms, max_backoff: 1s"
		s.Kinds = []load.Kind{s.ToLater(0.5, 0), s.Poison(0.05, 0)}
		r := s.StartWatched()
		s.RefuseLater()
		stop := s.Load(300)
		lose := func() {
			s.SQL(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%' AND backend_type = 'client backend'`)
		}
		for range 3 {
			s.AwaitRows(checker.Deferred, s.RowsIn(checker.Deferred)+20)
			lose()
		}
		s.MakeLater()
		for range 3 {
			s.MoreOf(s.Later(), 30)
			lose()
		}
		s.Kinds = nil
		stop()
		s.Leads(s.Ready(r))
		s.AwaitEmpty()
		s.Until("the dead letters", func() bool { return s.RowsIn(checker.Open) > 0 })
		s.CheckHistory(checker.History{MaxDuplicates: 0, MaxDead: -1})
		stopped(s, r, 0)
	})
}

// SIGKILL while the relay defers, dead-letters, replays and feeds: each once, in one of the states
// of its statement. What the order machine then does, and how it returns to direct delivery, is
// played by test/sim; all states, and many seeds, are in test/long.
func TestKilledInTheRetryTable(t *testing.T) {
	t.Parallel()
	stand.CrashEach(t)
}
