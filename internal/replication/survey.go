package replication

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

const (
	surveyEvery   = 5 * time.Second
	measureEvery  = time.Minute // each looks at every file of the tables
	maxOtherSlots = 99          // beside ours: of more, those that keep the most WAL
)

// survey asks, while there is a server to ask, what relaying does not depend on and operators want to see: how large the outbox
// tables are and, with Config.AllSlots, how the other logical slots of the server stand. A standby asks as well: nobody may
// lead. It returns when ctx is done.
func (s *Stream) survey(ctx context.Context, tables []string) {
	var times walTimes
	var measured time.Time
	said, next := "", monitorFirst
	for slept(ctx, next) {
		if phase := s.Snapshot().Phase; phase != Streaming && phase != Standby {
			continue // whoever is away is asked often enough
		}
		next = surveyEvery
		err := s.lookAround(ctx, tables, &times, &measured)
		if err == nil {
			said = ""
			continue
		}
		if why := localPort.ReplaceAllString(err.Error(), "$1"); why != said && ctx.Err() == nil && !goingAway(err) {
			said = why
			s.cfg.Log.Warn("the metrics of other slots and of the tables' size are missing", zap.String("why", why))
		}
	}
}

// surveying runs survey until it is ended. It is called before the tables' OIDs are filled in beside it, and their names never change.
func (s *Stream) surveying() (end func()) {
	tables := s.cfg.quotedTables()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.survey(ctx, tables) })
	return func() {
		cancel()
		running.Wait()
	}
}

// lookAround is one round of survey.
func (s *Stream) lookAround(ctx context.Context, tables []string, times *walTimes, measured *time.Time) error {
	if s.cfg.AllSlots {
		slots, total, err := readOtherSlots(ctx, s.pool, s.cfg.Slot, times)
		if err != nil {
			return err
		}
		s.status.others(slots, total)
	}
	if len(tables) == 0 || time.Since(*measured) < measureEvery {
		return nil
	}
	*measured = time.Now()
	bytes, err := tableBytes(ctx, s.pool, tables)
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
