// The test of the disk guard: its limits, and what it would cost.

package check

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// outboxShare is what the server's statistics say of the outbox and of all WAL.
type outboxShare struct {
	inserts      float64 // rows of the outbox tables
	width        float64 // bytes of one's columns, what is in TOAST apart; 0: not known
	chunks       float64 // of TOAST that these rows have
	wal          float64 // bytes of all WAL
	rowsFor      float64 // seconds in which these rows were inserted
	walFor       float64 // likewise, WAL
	hasNoOutbox  bool    // events are messages alone
	statisticsOf time.Duration
}

const (
	tupleHeader = 28   // bytes of a row next to its columns
	toastChunk  = 2000 // bytes of a chunk, the last one of a value has fewer
)

// outboxShareSQL reads counters: nothing is scanned. The counters of tables and of WAL may have
// begun at different times, so they are compared as rates. A table's size says nothing of its rows:
// rows that were deleted leave their space. pg_stats shows columns that the relay may read.
const outboxShareSQL = `WITH RECURSIVE t (oid) AS (
		SELECT to_regclass(name)::oid FROM unnest($1::text[]) name
		UNION SELECT inhrelid FROM ` + tableread.Heirs + ` JOIN t ON inhparent = t.oid),
	one AS (
		SELECT s.n_tup_ins AS inserts, coalesce(toast.n_tup_ins, 0) AS chunks,
			(SELECT sum(avg_width * (1 - null_frac)) FROM pg_stats p WHERE p.schemaname = s.schemaname AND p.tablename = s.relname AND NOT p.inherited) AS width
		FROM t JOIN pg_class c ON c.oid = t.oid JOIN pg_stat_all_tables s ON s.relid = t.oid LEFT JOIN pg_stat_all_tables toast ON toast.relid = c.reltoastrelid)
	SELECT (SELECT coalesce(sum(inserts), 0)::float8 FROM one),
		(SELECT coalesce(sum(width * inserts) / nullif(sum(inserts), 0), avg(width), 0)::float8 FROM one WHERE width IS NOT NULL),
		(SELECT coalesce(sum(chunks), 0)::float8 FROM one),
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
	if err := source.CheckGuard(ctx, c.pool, c.c.Guard); err != nil {
		c.add(name, "", err)
		return
	}
	left, err := c.guardLeft(ctx)
	if c.warnUnchecked(name, err) {
		return
	}
	s := outboxShare{hasNoOutbox: len(c.c.Tables) == 0}
	err = c.pool.QueryRow(ctx, outboxShareSQL, c.c.QuotedTables()).Scan(&s.inserts, &s.width, &s.chunks, &s.wal, &s.rowsFor, &s.walFor)
	if c.warnUnchecked(name, err) {
		return
	}
	s.statisticsOf = time.Duration(min(s.rowsFor, s.walFor)) * time.Second
	detail, costly := s.estimate()
	detail += left
	if costly {
		c.warn(name, detail, "leave the section guard out, and give pg_wal the disk; or set guard.max_bytes to what you want to spend")
		return
	}
	c.add(name, detail, nil)
}

// guardLeft says how much the guard may still defer. It is all before the tables are there.
func (c *checker) guardLeft(ctx context.Context) (string, error) {
	var exists bool
	if err := c.pool.QueryRow(ctx, "SELECT to_regclass('cdc_relay.dead_letter') IS NOT NULL").Scan(&exists); err != nil || !exists {
		return "", err
	}
	disk, err := survey.ReadDisk(ctx, c.pool, c.c.Slot, c.c.Guard)
	used := disk.Own
	if err == nil && used >= c.c.Guard.MaxBytes/2 {
		var rows int64
		rows, err = survey.ReadRows(ctx, c.pool, c.c.Guard)
		used = min(used, rows)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("; %s of guard.max_bytes is left", source.BytesText(uint64(max(0, c.c.Guard.MaxBytes-used)))), nil
}

// estimate says how much WAL the server writes for each event, which the slot need not keep once
// the event is deferred, and how much disk the event takes then.
func (s *outboxShare) estimate() (detail string, costly bool) {
	switch {
	case s.hasNoOutbox:
		return "what it frees is not known: events are messages, which no statistics count", false
	case s.inserts == 0 || s.wal == 0 || s.rowsFor <= 0 || s.walFor <= 0:
		return "what it frees is not known yet: the server's statistics have no insert into the outbox", false
	case s.width == 0:
		return "what it frees is not known: the server shows no statistics of the outbox's columns, which take an ANALYZE and the relay's SELECT on the table", false
	}
	freed := s.wal / s.walFor / (s.inserts / s.rowsFor)
	row := s.width + tupleHeader + toastChunk*s.chunks/s.inserts
	cost := row + guard.RowOverhead
	detail = fmt.Sprintf("the outbox's rows are about %.0f%% of the WAL: deferring an event frees about %s of WAL and takes about %s in the retry table, by the statistics of the last %s",
		min(100, 100*row/freed), source.BytesText(uint64(freed)), source.BytesText(uint64(cost)), statisticsAge(s.statisticsOf))
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
