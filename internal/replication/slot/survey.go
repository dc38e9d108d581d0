// The survey: every few seconds it reads what status and metrics show of the server: our slot, the
// size of the outbox tables, the other logical slots and, in the leader, the other hosts and the
// slots that nobody holds. Relaying does not depend on any of it, so it runs beside the stream.

package slot

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

const (
	surveyFirst = time.Second
	surveyEvery = 5 * time.Second
	// surveyAfter is the longest pause while rounds keep failing, because a refused login should
	// not be tried more often
	surveyAfter   = 30 * time.Second
	measureEvery  = time.Minute // between questions that cost more: sizes, hosts, unheld slots
	MaxOtherSlots = 99          // slots that are shown besides ours: those that retain the most WAL
)

// Survey reads what operators want to see and relaying does not depend on. It does so in every
// phase, also after Stream.Run has returned: what the slot retains matters most when nobody reads
// it. It ends when ctx is done.
func Survey(ctx context.Context, pool *pgxpool.Pool, c *source.Config, seen *Status, tables []string) {
	v := surveyor{pool: pool, c: c, status: seen, tables: tables}
	said, next := "", surveyFirst
	for source.Sleep(ctx, next) {
		err := v.surveyOnce(ctx)
		if err == nil {
			said, next = "", surveyEvery
			continue
		}
		next = min(2*next, surveyAfter)
		if why := source.StableText(err.Error()); why != said && ctx.Err() == nil && !source.IsGoingAway(err) {
			said = why
			c.Log.Warn("cannot read slots and table sizes: their metrics are missing", zap.String("reason", why))
		}
	}
}

// surveyor is what Survey remembers between two rounds.
type surveyor struct {
	pool             *pgxpool.Pool
	c                *source.Config
	status           *Status
	tables           []string // names of the outbox tables, quoted
	times            walTimes
	tablesMeasuredAt time.Time // when the tables' size was asked for last
	hostsAskedAt     time.Time // when the other hosts were asked last
	unheldLookedAt   time.Time // when slots that nobody holds were looked for; zero: look again
	unheld           unheldNames
	standbys         []string // that the last round has found
}

// surveyOnce is one round of Survey.
func (v *surveyor) surveyOnce(ctx context.Context) error {
	var q source.Querier = v.pool
	if v.status.Snapshot().Phase == Standby {
		q = AsStandby(q, v.c) // the sessions are the same
	}
	view, err := ReadView(ctx, q, v.c.Slot)
	if err != nil {
		return err
	}
	v.status.SetSlot(view)
	held, err := view.HeldBy(ctx, q)
	if err != nil {
		return err
	}
	v.status.changeSnapshot(func(snap *Snapshot) { snap.HeldBy = held })
	slots, total, err := readOtherSlots(ctx, q, v.c.Slot, &v.times)
	if err != nil {
		return err
	}
	v.status.changeSnapshot(func(snap *Snapshot) { snap.OtherSlots, snap.OtherTotal = slots, total })
	if err := v.askStandbyRelays(ctx); err != nil {
		return err
	}
	if err := v.askHosts(ctx, view); err != nil {
		return err
	}
	if err := v.measureTables(ctx); err != nil {
		return err
	}
	return v.askUnheld(ctx)
}

// measureTables asks for the size of the outbox tables, once in measureEvery.
func (v *surveyor) measureTables(ctx context.Context) error {
	if len(v.tables) == 0 || time.Since(v.tablesMeasuredAt) < measureEvery {
		return nil
	}
	v.tablesMeasuredAt = time.Now()
	bytes, err := TableBytes(ctx, v.pool, v.tables)
	if source.SQLState(err) == "55P03" { // somebody alters it: the next time
		return nil
	}
	if err != nil {
		return err
	}
	v.status.changeSnapshot(func(snap *Snapshot) { snap.TableBytes = bytes })
	return nil
}

// askHosts asks the other hosts of source.url, once in measureEvery, whether they have our failover
// slot. A relay that stands by does not ask: there may be many such relays, and the leader has the
// answer. Hosts that do not answer delay the survey by a few seconds, which delays nothing but
// numbers.
func (v *surveyor) askHosts(ctx context.Context, view *View) error {
	if view == nil || !view.Failover || v.status.Snapshot().Phase != Streaming {
		v.status.changeSnapshot(func(snap *Snapshot) { snap.Hosts = nil })
		v.hostsAskedAt = time.Time{}
		return nil
	}
	if time.Since(v.hostsAskedAt) < measureEvery {
		return nil
	}
	v.hostsAskedAt = time.Now()
	others, err := source.ReadHosts(ctx, v.pool, v.c)
	if err != nil {
		return fmt.Errorf("ask the other hosts of source.url: %w", err)
	}
	var seen []HostSlot
	for i := range others {
		if source.SQLState(others[i].Err) == "53300" {
			continue // it has no connection left, so it may also be the server that is read
		}
		seen = append(seen, HostSlot{Host: others[i].Addr, Synced: others[i].Usable()})
	}
	v.status.changeSnapshot(func(snap *Snapshot) { snap.Hosts = seen })
	return nil
}

// readOtherSlots reads the logical slots of the server except ours, in all databases, and how many
// there are. It adds the current position of the WAL to times, and tells from times since when each
// slot is behind.
func readOtherSlots(ctx context.Context, q source.Querier, ours string, times *walTimes) (slots []SlotSeen, total int, err error) {
	// One row more, of the server itself, comes also when there are no slots: the WAL's position is
	// remembered all the same.
	views, err := source.List(ctx, q, "read pg_replication_slots", func(row pgx.CollectableRow) (v View, err error) {
		return v, row.Scan(append([]any{&total, &times.segment}, v.ScanTargets()...)...)
	}, `SELECT count(s.slot_name) OVER (), pg_size_bytes(current_setting('wal_segment_size')), `+Columns+`
		FROM (VALUES (1)) one LEFT JOIN (`+Tables+`) ON s.slot_type = 'logical' AND s.slot_name <> $1
		ORDER BY s.restart_lsn NULLS LAST, s.slot_name LIMIT $2`, ours, MaxOtherSlots)
	if err != nil {
		return nil, 0, err
	}
	now := time.Now()
	for i, v := range views {
		if i == 0 {
			times.addPosition(now, v.Current)
		}
		if v.Name == "" {
			continue
		}
		slots = append(slots, SlotSeen{View: v, Checked: now, BehindSince: times.passedAt(v.ConfirmedFlush)})
	}
	return slots, total, nil
}

// waitingForNoLock calls do in a transaction that waits no more than 100 ms for a lock, because its
// connection is one of few. settings is SQL that is appended to the transaction's first statement;
// what names the work in errors.
func waitingForNoLock(ctx context.Context, pool *pgxpool.Pool, what, settings string, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'"+settings); err != nil {
			return err
		}
		return do(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// TableBytes is the size of tables with their indexes and TOAST tables and all their partitions.
func TableBytes(ctx context.Context, pool *pgxpool.Pool, tables []string) (bytes *int64, err error) {
	err = waitingForNoLock(ctx, pool, "read the size of the outbox tables", "", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `WITH RECURSIVE t (oid) AS (
				SELECT to_regclass(name)::oid FROM unnest($1::text[]) name
				UNION SELECT inhrelid FROM `+sent.HeirsSQL+` JOIN t ON inhparent = t.oid)
			SELECT sum(pg_total_relation_size(oid))::bigint FROM t`, tables).Scan(&bytes)
	})
	return bytes, err
}

// walTimes remembers when the WAL was at which position. From it the survey tells for how many
// seconds another program's slot is behind, whose commits we do not see. It keeps at most
// maxWALTimes entries and thins out old ones, so it covers the whole time since it began.
type walTimes struct {
	segment uint64    // size in bytes of a file of WAL
	seen    []walTime // the oldest first, by time and by position
}

// walTime says that the WAL was at lsn at a time.
type walTime struct {
	at  time.Time
	lsn pglogrepl.LSN
}

// maxWALTimes bounds the memory of walTimes.
const maxWALTimes = 1024

// addPosition records that the WAL is at lsn. A lower position, of another timeline, clears the
// record.
func (w *walTimes) addPosition(at time.Time, lsn pglogrepl.LSN) {
	if n := len(w.seen); n > 0 {
		last := w.seen[n-1].lsn
		if lsn == last {
			return
		}
		if lsn < last {
			w.seen = w.seen[:0]
		}
	}
	if len(w.seen) == maxWALTimes {
		w.thinOut(at)
	}
	w.seen = append(w.seen, walTime{at, lsn})
}

// thinOut removes the entry whose removal leaves the smallest gap relative to the entry's age. So
// the gaps grow with age.
func (w *walTimes) thinOut(now time.Time) {
	least, at := math.Inf(1), 1
	for i := 1; i < len(w.seen)-1; i++ {
		gap := w.seen[i+1].at.Sub(w.seen[i-1].at).Seconds() / now.Sub(w.seen[i].at).Seconds()
		if gap < least {
			least, at = gap, i
		}
	}
	w.seen = slices.Delete(w.seen, at, at+1)
}

// passedAt returns when WAL after lsn was first seen; zero means never. The time is late by up to
// the time between two entries, which for old entries is a few percent of their age. It is never
// before the first entry.
func (w *walTimes) passedAt(lsn pglogrepl.LSN) time.Time {
	for _, s := range w.seen {
		if source.WALBeyond(w.segment, lsn, s.lsn) {
			return s.at
		}
	}
	return time.Time{}
}
