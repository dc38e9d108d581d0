package core

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// What a handler does wrong with its transaction, and what becomes of the message. None of it makes
// an effect without its record, nor one that is there twice.
func TestMisuseOfTheTransaction(t *testing.T) {
	t.Parallel()
	exec := func(sql string) inbox.Handler {
		return func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			if err := write(ctx, tx, m); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	for name, tc := range map[string]struct {
		handler         inbox.Handler
		class           inbox.Class // "" for success
		reason          string
		effects, record int
	}{
		"ignores an error": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_ = exec("SELECT 1/0")(ctx, tx, m)
			return nil
		}, inbox.Transient, "ignored an error", 0, 0},
		"undoes an error": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return exec("SELECT 1/0")(ctx, tx, m) })
			return write(ctx, tx, m)
		}, "", "", 1, 1},
		"commits": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_ = write(ctx, tx, m)
			return tx.Commit(ctx)
		}, inbox.Transient, "the inbox ends the transaction", 0, 0},
		"rolls back": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_ = write(ctx, tx, m)
			return tx.Rollback(ctx)
		}, inbox.Transient, "the inbox ends the transaction", 0, 0},
		"commits as if it had begun": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			defer func() { _ = tx.Rollback(ctx) }() // as code does that has begun it
			if err := write(ctx, tx, m); err != nil {
				return err
			}
			_ = tx.Commit(ctx)
			return nil
		}, "", "", 1, 1},
		"commits by SQL":    {exec("COMMIT"), inbox.Permanent, "ended its transaction by SQL", 1, 1},
		"rolls back by SQL": {exec("ROLLBACK"), inbox.Permanent, "ended its transaction by SQL", 0, 0},
		"commits by SQL, and fails": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			return errors.Join(exec("COMMIT")(ctx, tx, m), inbox.ErrTransient, errMailer)
		}, inbox.Permanent, "the mailer is away", 1, 1},
		"commits by SQL, and panics": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_ = exec("COMMIT")(ctx, tx, m)
			panic("after it")
		}, inbox.Permanent, "ended its transaction by SQL", 1, 1},
		"leaves rows unread": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_ = write(ctx, tx, m)
			return unread(ctx, tx)
		}, inbox.Transient, "commit", 0, 0},
		"breaks a deferred constraint": {exec("INSERT INTO orders VALUES (1), (1)"), inbox.Transient, "orders_id_key", 0, 0},
		"panics in a query": {func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_ = write(ctx, tx, m)
			if err := unread(ctx, tx); err != nil {
				return err
			}
			panic("rows")
		}, inbox.Panic, "rows", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.handler, nil)
			_, err := r.pool.Exec(t.Context(), "CREATE TABLE orders (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			await.Must(t, err)
			await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1"}))
			if tc.class != "" {
				if f := r.published.failure(t); f.Class != tc.class || !strings.Contains(f.Reason, tc.reason) {
					t.Errorf("%+v, want class %s and reason %q", f, tc.class, tc.reason)
				}
			} else if r.outcomes("success") != 1 {
				t.Error("no success")
			}
			if n, records := r.effects(t, "1"), r.count(t, "SELECT count(*) FROM processed_messages"); n != tc.effects || records != tc.record {
				t.Errorf("effects %d, records %d; want %d and %d", n, records, tc.effects, tc.record)
			}
			await.Until(t, "no transaction to be open", func() bool {
				return r.count(t, "SELECT count(*) "+ours+" AND state LIKE 'idle in transaction%'") == 0
			})
		})
	}
}

// unread leaves the answer to a query unread.
func unread(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck // that is the mistake
	return err
}
