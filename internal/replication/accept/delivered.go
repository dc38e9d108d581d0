// The word that all was delivered before the database moved to this server.

package accept

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// recordSent records the rows that came from the server before as sent, as an operator says they
// were, and moves what waits. Otherwise a later recover would send them all: of a restored dump
// nothing is known. left: there are rows that may have been written here.
//
// Not recorded are rows that may have been written here (sent.Description.UnsentSQL); others with
// the id of an event that waits or is a dead letter, whatever its table; and those that do not say
// which transaction wrote them, of which nothing can be known.
//
// Rows keep the numbers of their transactions, also those that this server has not given yet. A row
// that is written here under one of them has another id, so it is not taken for sent, and
// publication.Table.First begins again (slot.Record.SentBefore). A commit timestamp of such a
// number is not taken for the row's (slot.Record.Restored).
func (a *acceptance) recordSent(ctx context.Context, tx pgx.Tx) (left bool, err error) {
	if err := slot.CheckReadable(ctx, a.pool, a.c); err != nil {
		return false, err
	}
	same, err := slot.SameTables(ctx, tx, a.c.Slot)
	if err != nil {
		return false, err
	}
	// It is idle while the tables are read. It locks nothing but our own tables.
	if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return false, err
	}
	if err := a.moveRows(ctx, tx); err != nil {
		return false, err
	}
	err = tableread.Alone(ctx, a.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(read pgx.Tx) error {
		// nested loops would go through the sent set once per row, if its size is misjudged
		if _, err := read.Exec(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL enable_nestloop = off"); err != nil {
			return err
		}
		for _, t := range a.c.Tables {
			some, err := a.recordTable(ctx, tx, read, t, same)
			if err != nil {
				return fmt.Errorf("read the rows of %s: %w", t, err)
			}
			left = left || some
		}
		return nil
	})
	return left, err
}

// recordTable records the rows of one table, which another transaction reads. same: what was
// recorded on the server before is true here, and need not be recorded again.
func (a *acceptance) recordTable(ctx context.Context, tx, read pgx.Tx, t decode.Table, same bool) (left bool, err error) {
	name := source.QuoteTable(t)
	if err := tableread.Lock(ctx, read, a.pool, name); err != nil {
		return false, err
	}
	d, err := sent.Describe(ctx, a.pool, slot.SentTable(t))
	if err != nil {
		return false, err
	}
	var recorded []uint32
	if same {
		recorded = d.Family
	}
	rows, err := read.Query(ctx, d.UnsentPartsSQL(name), a.c.Slot, recorded)
	if err != nil {
		return false, err
	}
	var count, first, last int64
	var digests []int64
	_, err = pgx.ForEachRow(rows, []any{&count, &first, &last, &digests}, func() error {
		if len(digests) == 0 {
			left = left || last > 0 || !d.Tells()
			return nil
		}
		a.result.Recorded += count
		_, err := tx.Exec(ctx, sent.InsertByWordSQL, a.c.Slot, d.OID, sent.Chunk(uint64(first)), first, last, digests)
		return err
	})
	if err != nil {
		return false, err
	}
	return left, tableread.Check(ctx, a.pool, name)
}
