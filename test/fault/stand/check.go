// What a test sees of the database, the slot and the broker; the relay is never asked.

package stand

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Check waits until everything is where it belongs, and asks the checker: with every fault fixed,
// so that nothing is left in the retry table and nothing is dead. maxDuplicates -1 is any number.
func (s *Stand) Check(maxDuplicates int) checker.Verdict {
	s.T.Helper()
	return s.CheckHistory(checker.History{MaxDuplicates: maxDuplicates})
}

// CheckHistory is Check by other rules: the fields of h from MaxDuplicates on are the test's, and
// so is Committed when its table is not the workload's; the others are filled in.
func (s *Stand) CheckHistory(h checker.History) checker.Verdict {
	s.T.Helper()
	var err error
	if h.Committed == nil {
		h.Committed, err = load.ReadCommitted(s.Context(), s.DB)
		s.Must(err)
	}
	if len(h.Committed) == 0 {
		s.T.Fatal("nothing was committed: this test shows nothing")
	}
	h.Committed = append(h.Committed, s.Messages...)
	waited := s.settled(h)
	s.Must(s.Consumer.Drain(s.Context()))
	h.RetryTable, err = checker.ReadRetryTable(s.Context(), s.DB, s.Slot)
	s.Must(err)
	h.Stays, err = checker.ReadStays(s.Context(), s.DB, s.Slot)
	s.Must(err)
	h.RolledBack, h.Deliveries, h.Marks = s.rolledBack(), s.Consumer.Deliveries(), s.Consumer.Marks()
	h.NoKeyOrder, h.CommitOrder = s.Ordering == "none", s.Ordering == "commit"
	v := checker.Check(h)
	if err := v.Err(); err != nil {
		s.T.Error(err, waited)
	}
	s.T.Logf("%s; %d times in the retry table", v, len(h.Stays))
	return v
}

// settled waits until each committed row has arrived or is a dead letter, and no more are deferred
// than may be, or nothing changes any more: that is for the checker to say.
func (s *Stand) settled(h checker.History) error {
	s.T.Helper()
	ctx := s.Context()
	const most, pause = 2 * time.Minute, 50 * time.Millisecond // without a change
	last, same := "", time.Duration(0)
	for {
		retryRow, err := checker.ReadRetryTable(ctx, s.DB, s.Slot)
		if err != nil {
			return err
		}
		put, purged := map[string]bool{}, map[event.Position]bool{}
		deferred := 0
		for _, row := range retryRow {
			if row.State == checker.Purged {
				purged[row.Position] = true
			}
			if row.State == checker.Deferred {
				deferred++
			}
			put[row.ID] = (row.State != checker.Deferred || h.MaxDeferred != 0) && row.State != checker.Replayed
		}
		if len(purged) > 0 { // those rows do not have their ids
			stays, err := checker.ReadStays(ctx, s.DB, s.Slot)
			if err != nil {
				return err
			}
			for _, stay := range stays {
				put[stay.ID] = put[stay.ID] || purged[stay.Position]
			}
		}
		var ids []string
		for _, r := range h.Committed {
			if !put[r.ID] {
				ids = append(ids, r.ID)
			}
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		err = s.Consumer.WaitIDs(short, ids)
		cancel()
		if err == nil {
			// Again: an event may have been deferred since, and delivered from there.
			deferred = s.RowsIn(checker.Deferred)
		}
		enough := h.MaxDeferred < 0 || deferred <= h.MaxDeferred
		if err == nil && enough {
			return nil
		}
		arrived, _ := s.Consumer.Count()
		if now := fmt.Sprint(arrived, deferred); now != last {
			last, same = now, 0
		}
		if same > most {
			return err
		}
		if same += time.Second; err == nil { // it has arrived, and its row is about to go
			time.Sleep(pause)
			same += pause - time.Second
		}
	}
}

// WatchFlush sees every report that goes through the stand's proxy, samples the slot, and keeps a
// log of the retry table's tables while the test runs: so the checker sees a report that came
// before its delivery or its row. It is called before the first relay is started.
func (s *Stand) WatchFlush() {
	s.T.Helper()
	s.Must(checker.LogRetryTable(s.Context(), s.DB))
	ctx, cancel := context.WithCancel(context.Background())
	s.reports = consumers.NewReportWatch(s.Postgres, s.Consumer, s.DB)
	done := make(chan error, 2)
	go func() { done <- s.reports.Run(ctx) }()
	go func() {
		done <- consumers.FlushWatch{DB: s.DB, Slot: s.Slot, Consumer: s.Consumer, RetryTable: true}.Run(ctx)
	}()
	s.T.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			s.T.Error(err)
		}
		s.T.Logf("%d reports were watched", s.reports.Seen())
	})
}

// Unreported is how many deliveries a relay that starts now may make a second time. It waits until
// nobody holds the slot, and nothing arrives any more: what a dead relay had sent may be on its
// way.
func (s *Stand) Unreported() int {
	s.T.Helper()
	s.Free()
	if s.Broker != nil {
		s.Until("the broker to have read what the dead relay sent", func() bool { return s.Broker.Connections() == 0 })
	}
	s.arrivesNothing()
	return s.Since(s.Flush())
}

// arrivesNothing waits until nothing has arrived for a while.
func (s *Stand) arrivesNothing() {
	s.T.Helper()
	last, since := -1, time.Now()
	s.Until("nothing more to arrive", func() bool {
		s.Must(s.Consumer.Drain(s.Context()))
		if n := len(s.Consumer.Deliveries()); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
}

// Since is how many deliveries may be sent again when a relay begins at position at of the slot:
// those that have arrived beyond it and that the retry table does not know, and those whose rows
// wait there still, or whose dead letters are open. In addition each deferred event beyond it: the
// relay may deliver it from the table, and delete its row, before the stream brings it and asks.
func (s *Stand) Since(at pglogrepl.LSN) (n int) {
	s.T.Helper()
	s.Must(s.Consumer.Drain(s.Context()))
	rows, err := checker.ReadRetryTable(s.Context(), s.DB, s.Slot)
	s.Must(err)
	known := map[event.Position]checker.RetryRowState{}
	for _, row := range rows {
		known[row.Position] = row.State
		if row.State == checker.Deferred && row.Position.Commit >= at {
			n++
		}
	}
	for _, d := range s.Consumer.Deliveries() {
		state, ok := known[d.Position]
		if ok && (state == checker.Deferred || state == checker.Open) || !ok && d.Position.Commit >= at {
			n++
		}
	}
	return n
}

// Unproven is how many committed events a server that was started again does not prove to have been
// settled: those beyond the position that the relay had reported when it last wrote that down. A
// relay that lives through the restart may send them again. It is called while the relay is kept
// away.
func (s *Stand) Unproven() (n int) {
	s.T.Helper()
	var at pglogrepl.LSN
	s.Query([]any{&at, &n}, `SELECT (SELECT reported FROM cdc_relay.progress WHERE slot = $1), count(*) FROM outbox`, s.Slot)
	s.Must(s.Consumer.Drain(s.Context()))
	below := map[string]bool{}
	for _, d := range s.Consumer.Deliveries() {
		if d.Position.Commit < at {
			below[d.ID] = true
		}
	}
	return n - len(below)
}

// Flush is the slot's position.
func (s *Stand) Flush() (at pglogrepl.LSN) {
	s.T.Helper()
	s.Query([]any{&at}, `SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1`, s.Slot)
	return at
}

// Free waits until nobody holds the slot.
func (s *Stand) Free() {
	s.T.Helper()
	s.Until("slot "+s.Slot+" to be free", func() bool { return s.Walsender() == 0 })
}

// Reported waits until the slot is beyond everything that has arrived.
func (s *Stand) Reported() {
	s.T.Helper()
	s.Until("slot "+s.Slot+" to pass what has arrived", func() bool { return s.Since(s.Flush()) == 0 })
	if s.reports != nil && s.reports.Seen() == 0 {
		s.T.Error("no report went through the stand's proxy: none was watched")
	}
}

// AwaitReports waits until the relay has gone on reporting for d, by its own clock: time enough to
// raise the flush limit for whatever it takes for settled, and to report that.
func (s *Stand) AwaitReports(d time.Duration) {
	s.T.Helper()
	var first time.Time
	s.Until("reports to go on for "+d.String(), func() bool {
		var at *time.Time
		s.Query([]any{&at}, `SELECT max(reply_time) FROM pg_stat_replication WHERE application_name = left('cdc-relay/' || $1, 63)`, s.Slot)
		if at == nil {
			return false
		}
		if first.IsZero() {
			first = *at
		}
		return at.Sub(first) >= d
	})
}

// Walsender is the process that holds the slot, 0 for none.
func (s *Stand) Walsender() (pid int32) {
	s.T.Helper()
	s.Query([]any{&pid}, `SELECT coalesce((SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1), 0)`, s.Slot)
	return pid
}
