package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// record is our row of cdc_relay.slots with the numbers of cdc_relay.progress: what we remember of the slot.
type record struct {
	SystemID    string
	Timeline    int32
	Publication string
	State       string // stateCreating, stateReady, stateAdopt or stateTakeover
	Incarnation int64
	Epoch       int64
	Leader      string
	Raised      string // when the row was changed last: by whom the epoch was raised, if two have raised it to the same number
	Sends       sends
	SendsText   string        // as the row has it: what a write is compared with
	Ceiling     pglogrepl.LSN // 0 while creating
	Reported    pglogrepl.LSN
	Good        pglogrepl.LSN
	TookFrom    string        // the slot that this one takes the place of
	TookUntil   pglogrepl.LSN // in this incarnation: below it that slot's program has sent what was committed; 0: there was none
}

const (
	stateCreating = "creating"
	stateReady    = "ready"
	stateAdopt    = "adopt"
	stateTakeover = "takeover"
)

// querier is what a pool, a connection and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// readRecord is nil when the database has no record of the slot. to_jsonb serves the schema of the version before too, which
// commands may find.
func readRecord(ctx context.Context, q querier, slot string) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var r record
	err := q.QueryRow(ctx, `SELECT s.system_id, s.timeline, s.publication, s.state, s.incarnation, s.epoch, s.leader, s.changed_at::text, s.sends, s.sends::text,
			coalesce(p.ceiling, '0/0'::pg_lsn), coalesce(p.reported, '0/0'::pg_lsn),
			coalesce(p.good, '0/0'::pg_lsn),
			coalesce(to_jsonb(s)->>'took_from', ''), CASE to_jsonb(s)->>'took_incarnation' WHEN s.incarnation::text
				THEN (to_jsonb(s)->>'took_until')::pg_lsn ELSE '0/0' END
		FROM cdc_relay.slots s LEFT JOIN cdc_relay.progress p USING (slot) WHERE s.slot = $1`, slot).
		Scan(&r.SystemID, &r.Timeline, &r.Publication, &r.State, &r.Incarnation, &r.Epoch, &r.Leader, &r.Raised, &r.Sends, &r.SendsText, &r.Ceiling, &r.Reported, &r.Good, &r.TookFrom, &r.TookUntil)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cdc_relay.slots: %w", err)
	}
	return &r, nil
}

// slotView is the slot's row of pg_replication_slots and the server's position beside it.
type slotView struct {
	Name, Plugin, Type, Database string

	ConfirmedFlush     pglogrepl.LSN
	Restart            pglogrepl.LSN
	ActivePID          int32 // 0: nobody holds it
	WALStatus          string
	Invalidation       string // PG17+, else ""
	SafeWALBytes       *int64 // nil: unlimited, or lost
	Current            pglogrepl.LSN
	Holder, HolderUser string // application_name and role of the holder
	HolderState        string // sync_state of the holder in pg_stat_replication
	SpilledBytes       int64
}

// foreign says why the slot can not be that of a relay of this database, "" when it can: names of slots are the whole
// cluster's.
func (v *slotView) foreign(database string) string {
	switch {
	case v.Type != "logical" || v.Plugin != "pgoutput":
		return fmt.Sprintf("is a %s slot of plugin %q, not pgoutput", v.Type, v.Plugin)
	case v.Database != database:
		return fmt.Sprintf("belongs to database %q, not %q", v.Database, database)
	}
	return ""
}

// made reports whether the slot's creation has come to its end. Before that it has no position, and is dropped when whoever creates it
// ends: also long after its client is gone, because it waits for the transactions that are open.
func (v *slotView) made() bool { return v.ConfirmedFlush != 0 }

func (v *slotView) heldByRelay() bool { return strings.HasPrefix(v.Holder, applicationPrefix) }

// slotColumns are what a slotView is read from, and slotTables where they are. to_jsonb makes one statement serve PostgreSQL 14
// to 18.
const (
	slotColumns = `coalesce(s.slot_name, ''), coalesce(s.plugin, ''), coalesce(s.slot_type, ''), coalesce(s.database, ''),
			coalesce(s.confirmed_flush_lsn, '0/0'::pg_lsn), coalesce(s.restart_lsn, '0/0'::pg_lsn),
			coalesce(s.active_pid, 0), coalesce(s.wal_status, ''), coalesce(to_jsonb(s)->>'invalidation_reason', ''),
			s.safe_wal_size, pg_current_wal_lsn(), coalesce(a.application_name, ''), coalesce(a.usename, ''),
			coalesce(r.sync_state, ''), coalesce(t.spill_bytes, 0)`
	slotTables = `pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
			LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid
			LEFT JOIN pg_stat_replication_slots t ON t.slot_name = s.slot_name`
)

// fields are where slotColumns go.
func (v *slotView) fields() []any {
	return []any{
		&v.Name, &v.Plugin, &v.Type, &v.Database, &v.ConfirmedFlush, &v.Restart, &v.ActivePID, &v.WALStatus, &v.Invalidation,
		&v.SafeWALBytes, &v.Current, &v.Holder, &v.HolderUser, &v.HolderState, &v.SpilledBytes,
	}
}

// readSlot is nil when there is no slot of that name.
func readSlot(ctx context.Context, q querier, slot string) (*slotView, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var v slotView
	err := q.QueryRow(ctx, "SELECT "+slotColumns+" FROM "+slotTables+" WHERE s.slot_name = $1", slot).Scan(v.fields()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	return &v, nil
}

// beginCreating durably marks the slot as not to be used yet, before it exists: a slot found in this state without the
// creator's advisory lock was left by a crash and is made anew.
func beginCreating(ctx context.Context, pool *pgxpool.Pool, c *Config, id identity) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := pool.Exec(ctx, `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)
		VALUES ($1, $2, $3, $4, 'creating', 1)
		ON CONFLICT (slot) DO UPDATE SET system_id = excluded.system_id, timeline = excluded.timeline,
			publication = excluded.publication, state = 'creating', changed_at = now(),
			sends = CASE WHEN slots.system_id = excluded.system_id THEN slots.sends ELSE '{}' END`,
		c.Slot, id.SystemID, id.Timeline, c.Publication)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	return nil
}

// nextIncarnation is above that of the slot's row, and above that of every event that waits under the slot's name: these go
// first, by incarnation and position, also when the row was lost meanwhile.
const nextIncarnation = `1 + greatest((SELECT incarnation FROM cdc_relay.slots WHERE slot = $1),
	(SELECT max(incarnation) FROM cdc_relay.retry WHERE slot = $1), (SELECT max(incarnation) FROM cdc_relay.dead_letter WHERE slot = $1), 0)`

// makeReady records a slot that may be used from now on: created, or adopted as it stands, at position at. Its
// incarnation is a new one. What the publication sends was read before a new slot was created: what changed since differs.
func makeReady(ctx context.Context, pool *pgxpool.Pool, c *Config, id identity, now sends, at pglogrepl.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, sends, state, incarnation)
			VALUES ($1, $2, $3, $4, $5, 'ready', `+nextIncarnation+`)
			ON CONFLICT (slot) DO UPDATE SET system_id = excluded.system_id, timeline = excluded.timeline,
				publication = excluded.publication, sends = excluded.sends, state = 'ready', incarnation = excluded.incarnation,
				epoch = slots.epoch + 1, changed_at = now()`,
			c.Slot, id.SystemID, id.Timeline, c.Publication, now)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO cdc_relay.progress (slot, ceiling, reported, good) VALUES ($1, $2, $2, $2)
			ON CONFLICT (slot) DO UPDATE SET ceiling = $2, reported = $2, good = $2, at = now()`, c.Slot, at)
		return err
	})
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	return nil
}

// forget removes our rows of a slot that does not exist (any more).
func forget(ctx context.Context, q querier, slot string) error {
	if _, err := q.Exec(ctx, `WITH p AS (DELETE FROM cdc_relay.progress WHERE slot = $1)
		DELETE FROM cdc_relay.slots WHERE slot = $1`, slot); err != nil {
		return fmt.Errorf("delete from cdc_relay.slots: %w", err)
	}
	return nil
}

// holder is who holds the slot, in words.
func (v *slotView) holder() string {
	switch {
	case v.ActivePID == 0:
		return ""
	case v.Holder == "":
		return fmt.Sprintf("pid %d", v.ActivePID)
	}
	return fmt.Sprintf("%q (pid %d)", v.Holder, v.ActivePID)
}

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
