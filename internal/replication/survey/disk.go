// What the disk guard asks: the WAL that the slot keeps, and the size of the relay's own tables.

package survey

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Disk is how much of the server's disk the slot and the relay's own tables take.
type Disk struct {
	Retained int64 // WAL that the slot keeps
	DeferAt  int64 // WAL at which the guard begins
	Own      int64 // the retry table and the dead letters of all slots, with indexes and TOAST
}

// ReadDisk asks the server. It does not wait for a lock: its connection is one of few. A slot that
// is gone or has lost its WAL keeps none.
func ReadDisk(ctx context.Context, pool *pgxpool.Pool, slot string, limits guard.Limits) (d Disk, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var keep int64
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT coalesce((SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1), 0),
			`+source.KeepSize+`, pg_total_relation_size('cdc_relay.retry') + pg_total_relation_size('cdc_relay.dead_letter')`, slot).
			Scan(&d.Retained, &keep, &d.Own)
	})
	if err == nil {
		d.DeferAt, err = limits.At(keep)
	}
	if err != nil {
		return Disk{}, fmt.Errorf("read retained WAL and the size of the retry table: %w", err)
	}
	return d, nil
}
