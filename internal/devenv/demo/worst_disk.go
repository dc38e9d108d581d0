// A disk that would fill (WORST=1): the broker is away while the server writes more WAL than it
// keeps for a slot. The disk guard has events wait in a table, and the slot survives.

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

const (
	diskLimit = 64 // MiB of WAL that the server keeps for a slot
	diskChunk = 12 // MiB that the rest of the database writes at a time
	diskParts = 8  // such parts: more than the limit
)

// fillDisk stops the broker, writes WAL, and starts the broker again.
func (d *demo) fillDisk(ctx context.Context) error {
	name := d.broker.words().name
	d.Say("A disk that would fill: %s is away, and the database writes much that is no event. It keeps %d MiB of WAL for a slot; beyond that the slot is lost.", name, diskLimit)
	began := time.Now()
	d.meter.goAway(began)
	if err := d.onShop(ctx, fmt.Sprintf(`ALTER SYSTEM SET max_slot_wal_keep_size = '%dMB'`, diskLimit), `SELECT pg_reload_conf()`, `CREATE TABLE filler (content text)`); err != nil {
		return err
	}
	if err := d.broker.stop(ctx); err != nil {
		return err
	}
	for range diskGuard/diskChunk + 1 {
		if err := d.fill(ctx); err != nil {
			return err
		}
	}
	if err := d.until(ctx, "the disk guard", func(now sample) bool { return now.deferred > 0 }); err != nil {
		return err
	}
	d.Say("The disk guard defers: orders wait in PostgreSQL's retry table, in order, and the slot moves.")
	for part := range diskParts {
		if err := d.fill(ctx); err != nil {
			return err
		}
		if err := d.untilSlotMoves(ctx); err != nil {
			return err
		}
		d.Say("  %d MiB of other WAL, and the slot has moved.", (part+1)*diskChunk)
	}
	d.Say("The slot is still there. Starting %s again.", name)
	if err := d.broker.startAgain(ctx); err != nil {
		return err
	}
	if err := d.untilNoneDeferred(ctx); err != nil {
		return err
	}
	d.meter.comeBack(time.Now())
	d.found.filled = time.Since(began)
	d.Say("All of it was sent, in order, and events go directly again.")
	return d.onShop(ctx, `ALTER SYSTEM RESET max_slot_wal_keep_size`, `SELECT pg_reload_conf()`)
}

// fill writes WAL that is not the relay's, and has the server remove what no slot needs.
func (d *demo) fill(ctx context.Context) error {
	return d.onShop(ctx, fmt.Sprintf(`INSERT INTO filler SELECT repeat('x', 900) FROM generate_series(1, %d)`, diskChunk*1000), `TRUNCATE filler`, `CHECKPOINT`)
}

// untilSlotMoves waits until the slot keeps less than half of what it may.
func (d *demo) untilSlotMoves(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < patience; {
		var kept int64
		var status string
		err := pgserver.OnConn(ctx, d.db, func(conn *pgx.Conn) error {
			// it logs what a slot needs to move
			if _, err := conn.Exec(ctx, `CHECKPOINT`); err != nil {
				return err
			}
			return conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, wal_status FROM pg_replication_slots WHERE slot_name = $1`, slot).Scan(&kept, &status)
		})
		switch {
		case err != nil:
			return fmt.Errorf("read slot: %w", err)
		case status == "lost":
			return errors.New("the slot is lost")
		case kept < diskLimit<<20/2:
			return nil
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the slot has not moved for %s; the relay's last lines:\n%s", patience, d.lastLines())
}

// onShop runs statements on the shop's database.
func (d *demo) onShop(ctx context.Context, statements ...string) error {
	return pgserver.OnConn(ctx, d.db, func(conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}
