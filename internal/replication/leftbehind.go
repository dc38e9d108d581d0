package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// leftBehind are the rows that were visible in the slot's snapshot.
type leftBehind struct {
	rows   int64
	newest string // ctid-free words: the id of the last row by insertion order of the table, for people
}

func (b leftBehind) refuse(c *Config) error {
	return &outbox.Stop{
		Code: outbox.ExitUsage, Reason: "backfill",
		What: fmt.Sprintf("the outbox (%s) already has %d rows, newest %s: a new slot sends only what is committed from now on",
			namedIn(c.Tables), b.rows, b.newest),
		Mend: "state `source.backfill: false` to leave them behind, or empty the table (backfill: true, which would send them, is not in this version)",
	}
}

func countInSnapshot(ctx context.Context, pool *pgxpool.Pool, c *Config, snapshot string) (leftBehind, error) {
	var b leftBehind
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+quoteText(snapshot)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		for _, t := range c.Tables {
			var rows int64
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+quoteTable(t)).Scan(&rows); err != nil {
				return err
			}
			if rows == 0 {
				continue
			}
			b.rows += rows
			var newest string
			// Insertion order is what ctid approximates; it is for the eye of the operator only.
			if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT left(t.%s::text, 100) FROM %s t ORDER BY t.ctid DESC LIMIT 1",
				quoteName(idColumn(t)), quoteTable(t))).Scan(&newest); err != nil {
				return err
			}
			b.newest = newest
		}
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("look for rows in the outbox: %w", err)
	}
	return b, nil
}

func idColumn(t decode.Table) string {
	if len(t.Mapping.ID.Any) == 0 {
		return "id"
	}
	return t.Mapping.ID.Any[0]
}
