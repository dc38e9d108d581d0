// The transactions of a pass: one that looks, and those that delete.

package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

const (
	// statementTimeout bounds on our side what the server bounds: see plan.
	statementTimeout = 20 * time.Second
	batchRows        = 1000 // that one transaction deletes
	restFactor       = 3    // times as long as a transaction took it rests after it
	longestRest      = 10 * time.Second
)

// look looks at blocks.
func (p *pass) look(ctx context.Context, leaf, sql string, args []any) (s findings, err error) {
	err = p.within(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // nothing is to be committed
		if _, err := conn.PgConn().Exec(ctx, plan).ReadAll(); err != nil {
			return err
		}
		if err := tableread.Lock(ctx, tx, tx, leaf); err != nil {
			return err
		}
		var ours bool
		err = tx.QueryRow(ctx, sql, args...).Scan(&ours, &s.rows, &s.ripe, &s.held, &s.above, &s.late, &s.young, &s.next, &s.waits, &s.settled)
		switch {
		case err != nil:
			return err
		case !ours:
			return dlq.Fenced(p.cfg.Slot, p.cfg.Epoch)
		}
		return tableread.Check(ctx, tx, leaf)
	})
	if err != nil {
		return s, fmt.Errorf("look for delivered rows: %w", err)
	}
	return s, nil
}

// remove deletes what a look has found in blocks, in batches. Blocks in which a row cannot be
// deleted, because another table refers to it, are deleted from one by one, and those with such a
// row are left out.
func (p *pass) remove(ctx context.Context, l *leaf, sql string, args []any, from, to int64, s findings) (gone int64, err error) {
	// of as many blocks as have a batch, if what the look has found is spread evenly
	size := max(1, min(to-from, (to-from)*batchRows/max(s.ripe, 1)))
	for from < to && gone < s.ripe {
		end := min(from+size, to)
		n, err := p.batch(ctx, l.name, sql, append(append([]any{}, args...), tid(from), tid(end)))
		switch {
		case sqlClass(err, "23") && end-from > 1:
			size = 1
			continue
		case sqlClass(err, "23"):
			p.warn(l.name, err)
			p.closeConn()
		case err != nil:
			return gone, err
		}
		gone += n
		if n < batchRows {
			from = end
		}
	}
	return gone, nil
}

// batch deletes up to batchRows rows of blocks.
func (p *pass) batch(ctx context.Context, leaf, sql string, args []any) (gone int64, err error) {
	err = p.within(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return tableread.Delete(ctx, conn, leaf, plan, func(tx pgx.Tx) error {
			var ours bool
			if err := tx.QueryRow(ctx, sql, append(p.withAge(args), batchRows)...).Scan(&ours, &gone); err != nil {
				return err
			}
			if !ours {
				return dlq.Fenced(p.cfg.Slot, p.cfg.Epoch)
			}
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("delete delivered rows: %w", err)
	}
	if p.cfg.Deleted != nil && gone > 0 {
		p.cfg.Deleted(int(gone))
	}
	return gone, nil
}

// within calls do with the connection of the pass, and rests afterwards.
func (p *pass) within(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, statementTimeout)
	err = do(bounded, conn)
	cancel()
	rest := time.NewTimer(min(restFactor*time.Since(began), longestRest))
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-rest.C:
	}
	return err
}

// connect takes a connection out of the pool for the rest of the pass. It is closed then, and not
// given back: see tableread.Alone.
func (p *pass) connect(ctx context.Context) (*pgx.Conn, error) {
	if p.conn != nil {
		return p.conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	conn, err := p.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	p.conn = conn.Hijack()
	return p.conn, nil
}

func (p *pass) closeConn() {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.conn.Close(ctx) // what is open on it is rolled back
	p.conn = nil
}

func (p *pass) withAge(args []any) []any {
	return append(args, p.cfg.Keep.Seconds(), p.samples.below(p.bounds[0].now, p.cfg.Keep))
}

func tid(block int64) string { return fmt.Sprintf("(%d,0)", block) }
