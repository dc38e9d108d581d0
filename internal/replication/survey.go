package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

const (
	surveyEvery   = 5 * time.Second
	surveyAfter   = 30 * time.Second // at the most, when it fails again and again: a login that is refused is not tried more often
	measureEvery  = time.Minute      // each looks at every file of the tables
	maxOtherSlots = 99               // beside ours: of more, those that keep the most WAL
)

// Survey asks what operators want to see and relaying does not depend on: how our slot stands, how large the outbox tables are and,
// how the other logical slots of the server stand. It does so in every phase, and after Run has returned: when
// nobody reads the slot, it matters most what the slot keeps. It returns nil when ctx is done.
func (s *Stream) Survey(ctx context.Context) error {
	var times walTimes
	var measured time.Time
	said, next := "", monitorFirst
	for slept(ctx, next) {
		err := s.lookAround(ctx, &times, &measured)
		if err == nil {
			said, next = "", surveyEvery
			continue
		}
		next = min(2*next, surveyAfter)
		if why := steadyWords(err.Error()); why != said && ctx.Err() == nil && !goingAway(err) {
			said = why
			s.cfg.Log.Warn("the metrics of slots and of the tables' size are missing", zap.String("why", why))
		}
	}
	return nil
}

// lookAround is one round of Survey.
func (s *Stream) lookAround(ctx context.Context, times *walTimes, measured *time.Time) error {
	slot, err := readSlot(ctx, s.pool, s.cfg.Slot)
	if err != nil {
		return err
	}
	s.status.slot(slot)
	slots, total, err := readOtherSlots(ctx, s.pool, s.cfg.Slot, times)
	if err != nil {
		return err
	}
	s.status.others(slots, total)
	if len(s.tables) == 0 || time.Since(*measured) < measureEvery {
		return nil
	}
	*measured = time.Now()
	bytes, err := tableBytes(ctx, s.pool, s.tables)
	if pgCode(err) == "55P03" { // somebody alters it: the next time
		return nil
	}
	if err != nil {
		return err
	}
	s.status.measured(bytes)
	return nil
}

// readOtherSlots reads the logical slots of the server but ours, in all databases, and how many there are. It adds to times
// where the WAL is, and tells by them since when each slot is behind.
func readOtherSlots(ctx context.Context, q querier, ours string, times *walTimes) (slots []Slot, total int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	// One row more, of the server itself, comes also when there are no slots: the WAL's position is remembered all the same.
	rows, err := q.Query(ctx, `SELECT count(s.slot_name) OVER (), pg_size_bytes(current_setting('wal_segment_size')), `+slotColumns+`
		FROM (VALUES (1)) one LEFT JOIN (`+slotTables+`) ON s.slot_type = 'logical' AND s.slot_name <> $1
		ORDER BY s.restart_lsn NULLS LAST, s.slot_name LIMIT $2`, ours, maxOtherSlots)
	if err != nil {
		return nil, 0, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	now := time.Now()
	views, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v slotView, err error) {
		return v, row.Scan(append([]any{&total, &times.segment}, v.fields()...)...)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	for i, v := range views {
		if i == 0 {
			times.add(now, v.Current)
		}
		if v.Name == "" {
			continue
		}
		slot := v.public()
		slot.Checked, slot.BehindSince = now, times.passed(v.ConfirmedFlush)
		slots = append(slots, slot)
	}
	return slots, total, nil
}

// tableBytes is the size of tables with their indexes and TOAST tables and all their partitions. It does not wait for a lock:
// its connection is one of few.
func tableBytes(ctx context.Context, q txBeginner, tables []string) (bytes *int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `WITH RECURSIVE t (oid) AS (
				SELECT to_regclass(name)::oid FROM unnest($1::text[]) name
				UNION SELECT i.inhrelid FROM pg_inherits i JOIN t ON i.inhparent = t.oid)
			SELECT sum(pg_total_relation_size(oid))::bigint FROM t`, tables).Scan(&bytes)
	})
	if err != nil {
		return nil, fmt.Errorf("read the size of the outbox tables: %w", err)
	}
	return bytes, nil
}

type txBeginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}
