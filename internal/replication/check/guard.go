// The test of the disk guard: its limits, and what it would cost.

package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// rowOverhead is what a deferred event takes in the retry table next to itself, with its entries in
// the indexes.
const rowOverhead = 1024

// outboxShare is what the server's statistics say of the outbox and of all WAL.
type outboxShare struct {
	inserts      float64 // rows of the outbox tables
	row          float64 // bytes of one on disk, with indexes and TOAST; 0: not known
	wal          float64 // bytes of all WAL
	rowsFor      float64 // seconds in which these rows were inserted
	walFor       float64 // likewise, WAL
	hasNoOutbox  bool    // events are messages alone
	statisticsOf time.Duration
}

// outboxShareSQL reads counters: nothing is scanned. The counters of tables and of WAL may have
// begun at different times, so they are compared as rates.
const outboxShareSQL = `WITH RECURSIVE t (oid) AS (
		SELECT to_regclass(name)::oid FROM unnest($1::text[]) name
		UNION SELECT i.inhrelid FROM pg_inherits i JOIN t ON i.inhparent = t.oid)
	SELECT (SELECT coalesce(sum(s.n_tup_ins), 0)::float8 FROM pg_stat_all_tables s JOIN t ON t.oid = s.relid),
		coalesce((SELECT sum(pg_total_relation_size(c.oid))::float8 / nullif(sum(greatest(c.reltuples, 0))::float8, 0) FROM pg_class c JOIN t ON t.oid = c.oid AND c.relkind = 'r'), 0),
		w.wal_bytes::float8, extract(epoch FROM clock_timestamp() - coalesce(d.stats_reset, w.stats_reset))::float8,
		extract(epoch FROM clock_timestamp() - w.stats_reset)::float8
	FROM pg_stat_wal w, pg_stat_database d WHERE d.datname = current_database()`

// guard tests the limits of the disk guard against the server's, and estimates from its statistics
// what the guard frees and what it costs.
func (c *checker) guard(ctx context.Context) {
	const name = "disk guard"
	if !c.c.Guard.IsSet() {
		return
	}
	s := outboxShare{hasNoOutbox: len(c.c.Tables) == 0}
	err := c.pool.QueryRow(ctx, outboxShareSQL, c.c.QuotedTables()).Scan(&s.inserts, &s.row, &s.wal, &s.rowsFor, &s.walFor)
	if c.warnUnchecked(name, err) {
		return
	}
	s.statisticsOf = time.Duration(min(s.rowsFor, s.walFor)) * time.Second
	detail, costly := s.estimate()
	if costly {
		c.warn(name, detail, "leave the section guard out, and give pg_wal the disk; or set guard.max_bytes to what you want to spend")
		return
	}
	c.add(name, detail, nil)
}

// estimate says how much WAL the server writes for each event, which the slot need not keep once
// the event is deferred, and how much disk the event takes then.
func (s *outboxShare) estimate() (detail string, costly bool) {
	switch {
	case s.hasNoOutbox:
		return "what it frees is not known: events are messages, which no statistics count", false
	case s.inserts == 0 || s.wal == 0 || s.rowsFor <= 0 || s.walFor <= 0:
		return "what it frees is not known yet: the server's statistics have no insert into the outbox", false
	case s.row == 0:
		return "what it frees is not known: the outbox was never analysed; run ANALYZE", false
	}
	freed := s.wal / s.walFor / (s.inserts / s.rowsFor)
	cost := s.row + rowOverhead
	detail = fmt.Sprintf("the outbox is about %.0f%% of the WAL: deferring an event frees about %s of WAL and takes about %s in the retry table, by the statistics of the last %s",
		min(100, 100*s.row/freed), source.BytesText(uint64(freed)), source.BytesText(uint64(cost)), statisticsAge(s.statisticsOf))
	if cost >= freed {
		return detail + ": the guard would cost more disk than it frees", true
	}
	return detail, false
}

func statisticsAge(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.Round(time.Minute).String()
}

// checkGuard returns the error of a configuration that does not fit this server; any other fault is
// found by another test.
func (c *checker) checkGuard(ctx context.Context) error {
	var stop *event.Stop
	if err := source.CheckGuard(ctx, c.pool, c.c.Guard); errors.As(err, &stop) {
		return stop
	}
	return nil
}
