package stand

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// This file looks: at the database, the slot and the broker, never at the relay.

// Check waits until the broker has what the database has, and asks the checker. maxDuplicates -1 is any number.
func (s *Stand) Check(maxDuplicates int) devenv.Verdict {
	s.T.Helper()
	rows, err := devenv.ReadCommitted(s.Within(time.Minute), s.DB)
	s.Must(err)
	if len(rows) == 0 {
		s.T.Fatal("nothing was committed: this test shows nothing")
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	waited := s.Consumer.WaitIDs(s.Within(time.Minute), ids)
	s.Must(s.Consumer.Drain(s.Within(time.Minute)))
	v := devenv.Check(devenv.History{
		Committed: rows, RolledBack: s.rolledBack(), Deliveries: s.Consumer.Deliveries(), Marks: s.Consumer.Marks(),
		MaxDuplicates: maxDuplicates, NoKeyOrder: s.Ordering == "none", CommitOrder: s.Ordering == "commit",
	})
	if err := v.Err(); err != nil {
		s.T.Error(err, waited)
	}
	s.T.Log(v)
	return v
}

// WatchFlush sees every report that goes through the stand's proxy, and samples the slot, while the test runs: so the checker
// sees a report that came before its delivery. It is called before the first relay is started.
func (s *Stand) WatchFlush() {
	s.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.reports = devenv.NewReportWatch(s.Postgres, s.Consumer)
	done := make(chan error, 2)
	go func() { done <- s.reports.Run(ctx) }()
	go func() { done <- devenv.FlushWatch{DB: s.DB, Slot: s.Slot, Consumer: s.Consumer}.Run(ctx) }()
	s.T.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			s.T.Error(err)
		}
		s.T.Logf("%d reports were watched", s.reports.Seen())
	})
}

// Unreported is how many deliveries have arrived whose transaction the slot will send again: exactly what a relay that
// starts now may deliver a second time. It waits until nobody holds the slot.
func (s *Stand) Unreported() int {
	s.T.Helper()
	s.Free()
	return s.Since(s.Flush())
}

// Since is how many deliveries have arrived that a slot at position at will send again.
func (s *Stand) Since(at pglogrepl.LSN) (n int) {
	s.T.Helper()
	s.Must(s.Consumer.Drain(s.Within(time.Minute)))
	for _, d := range s.Consumer.Deliveries() {
		if d.Position.Commit >= at {
			n++
		}
	}
	return n
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
	s.Until(time.Minute, "slot "+s.Slot+" to be free", func() bool { return s.Walsender() == 0 })
}

// Reported waits until the slot is beyond everything that has arrived.
func (s *Stand) Reported() {
	s.T.Helper()
	s.Until(time.Minute, "slot "+s.Slot+" to pass what has arrived", func() bool { return s.Since(s.Flush()) == 0 })
	if s.reports != nil && s.reports.Seen() == 0 {
		s.T.Error("no report went through the stand's proxy: none was watched")
	}
}

// awaitReports waits until the relay has gone on reporting for d, by its own clock: time enough to raise the ceiling for
// whatever it takes for settled, and to report that.
func (s *Stand) awaitReports(d time.Duration) {
	s.T.Helper()
	var first time.Time
	s.Until(time.Minute, "reports to go on for "+d.String(), func() bool {
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

// SQL runs statements on the database; several, without arguments, are one transaction.
func (s *Stand) SQL(sql string, args ...any) {
	s.T.Helper()
	SQLOn(s.T, s.DB, sql, args...)
}

// SQLOn is SQL on any database.
func SQLOn(t *testing.T, db, sql string, args ...any) {
	t.Helper()
	onDatabase(t, db, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Query reads one row.
func (s *Stand) Query(into []any, sql string, args ...any) {
	s.T.Helper()
	onDatabase(s.T, s.DB, func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(into...) })
}

func onDatabase(t *testing.T, db string, do func(context.Context, *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, db)
	if err == nil {
		defer conn.Close(ctx)
		err = do(ctx, conn)
	}
	if err != nil {
		t.Fatal(err)
	}
}
