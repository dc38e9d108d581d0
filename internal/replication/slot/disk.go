// What the disk guard asks the server: the WAL that the slot keeps, and the disk space of the
// relay's own tables. When the guard defers events, it trades the first for the second, so it needs
// both.

package slot

import (
	"context"

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

// ReadDisk asks the server. A slot that is gone or has lost its WAL keeps none.
func ReadDisk(ctx context.Context, pool *pgxpool.Pool, slot string, limits guard.Limits) (d Disk, err error) {
	var keep int64
	err = waitingForNoLock(ctx, pool, "read retained WAL and the size of the retry table", "", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT coalesce((SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1), 0),
			`+source.KeepSize+`, pg_total_relation_size('cdc_relay.retry') + pg_total_relation_size('cdc_relay.dead_letter')`, slot).
			Scan(&d.Retained, &keep, &d.Own)
	})
	if err == nil {
		d.DeferAt, err = limits.At(keep)
	}
	return d, err
}

// rowsSQL reads the small columns of the tables; values are in TOAST. It reads along an index, so
// that the empty space of a file that was large is not read, and ends after as many rows as fit
// into guard.max_bytes. Rows that are deleted count until a vacuum has made their space free; the
// statistics know how many there are, or too few after a crash of the server. A row's contents that
// are left out, or were purged, take nothing.
const rowsSQL = `SELECT (
	(SELECT coalesce(sum($1 + CASE WHEN left_out IS NULL THEN bytes ELSE 0 END), 0) FROM
		(SELECT bytes, left_out FROM cdc_relay.retry ORDER BY n LIMIT $2) r)
	+ (SELECT coalesce(sum($1 + CASE WHEN left_out IS NULL AND state <> 'purged' THEN bytes ELSE 0 END), 0) FROM
		(SELECT bytes, left_out, state FROM cdc_relay.dead_letter ORDER BY n LIMIT $2) d)
	+ (SELECT coalesce(sum($1 * s.n_dead_tup + 2048 * coalesce(toast.n_dead_tup, 0)), 0)
		FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid LEFT JOIN pg_stat_all_tables toast ON toast.relid = c.reltoastrelid
		WHERE c.oid IN ('cdc_relay.retry'::regclass, 'cdc_relay.dead_letter'::regclass))
	)::bigint`

// ReadRows is about how many bytes the rows of the relay's own tables need, for all slots. This is
// less than the size of the files when rows were deleted. With many rows it takes seconds, up to
// ten.
func ReadRows(ctx context.Context, pool *pgxpool.Pool, limits guard.Limits) (bytes int64, err error) {
	err = waitingForNoLock(ctx, pool, "count what the rows of the retry table need", "; SET LOCAL statement_timeout = '10s'", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, rowsSQL, int64(guard.RowOverhead), limits.MaxBytes/guard.RowOverhead+1).Scan(&bytes)
	})
	return bytes, err
}
