package core

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib" // also a driver of database/sql

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// newRigSQL makes a service that uses database/sql, with one connection. The pool of the rig is for
// the test.
func newRigSQL(t *testing.T, url, poolURL string, handler inbox.HandlerSQL) *rig {
	t.Helper()
	db, err := sql.Open("pgx", url)
	await.Must(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { await.Must(t, db.Close()) })
	return newRigAt(t, poolURL, nil, func(cfg *inbox.Config) {
		cfg.Pool, cfg.DB, cfg.HandlerSQL, cfg.Levels = nil, db, handler, []time.Duration{time.Second}
	})
}

func writeSQL(ctx context.Context, tx *sql.Tx, m inbox.Message) error { return execSQL(ctx, tx, m, "") }

// execSQL writes the effect and runs a statement behind it.
func execSQL(ctx context.Context, tx *sql.Tx, m inbox.Message, statement string) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1)", m.ID); err != nil || statement == "" {
		return err
	}
	_, err := tx.ExecContext(ctx, statement)
	return err
}

// All that an inbox asks its database works with database/sql, too: an effect is there once, other
// content under its id is refused, and old records are deleted.
func TestSQL(t *testing.T) {
	t.Parallel()
	url := newSchema(t)
	r := newRigSQL(t, url, url, writeSQL)
	transport := r.Transport("rabbitmq")
	await.Must(t, transport.Ready(t.Context()))
	if known, err := transport.Remembers(t.Context()); known || err != nil {
		t.Errorf("remembers %v, %v", known, err)
	}
	for _, payload := range []string{"p", "p", "other"} {
		await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1", Payload: []byte(payload)}))
	}
	if r.effects(t, "1") != 1 || r.outcomes("success") != 1 || r.outcomes("duplicate") != 1 || len(r.published.dead) != 1 {
		t.Errorf("effects %d, duplicates %d, dead letters %v", r.effects(t, "1"), r.outcomes("duplicate"), r.published.dead)
	}
	if known, err := transport.Remembers(t.Context()); !known || err != nil {
		t.Errorf("remembers %v, %v", known, err)
	}
	_, err := r.pool.Exec(t.Context(), "UPDATE processed_messages SET processed_at = now() - interval '31 days'")
	await.Must(t, err)
	if n, err := r.Prune(t.Context()); n != 1 || err != nil {
		t.Errorf("%d records were deleted, %v", n, err)
	}
	// What was the primary is a standby after a promotion: its connection is not used again.
	r.cfg.DB.SetMaxIdleConns(1)
	_, err = r.cfg.DB.ExecContext(t.Context(), "SET default_transaction_read_only = on")
	await.Must(t, err)
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "2"}))
	if r.outcomes("success") != 2 {
		t.Errorf("%d successes", r.outcomes("success"))
	}
}

// A pool of pgx serves database/sql, too. A connection that is not to be used again leaves the
// pool.
func TestSQLOverPool(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, newSchema(t)+"&pool_max_conns=1", nil, func(cfg *inbox.Config) {
		db := stdlib.OpenDBFromPool(cfg.Pool)
		t.Cleanup(func() { await.Must(t, db.Close()) })
		cfg.Pool, cfg.DB, cfg.HandlerSQL = nil, db, writeSQL
	})
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1"}))
	_, err := r.pool.Exec(t.Context(), "SET default_transaction_read_only = on")
	await.Must(t, err)
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "2"}))
	if n := r.effects(t, "1") + r.effects(t, "2"); n != 2 || r.outcomes("success") != 2 {
		t.Errorf("%d effects, %d successes", n, r.outcomes("success"))
	}
}

// A handler of database/sql may end its transaction, since it has the transaction itself. Whatever
// it does, no effect is there without its record, none is lost behind an acknowledgement, and the
// connection comes back.
func TestHandlersOfSQL(t *testing.T) {
	t.Parallel()
	statement := func(text string) inbox.HandlerSQL {
		return func(ctx context.Context, tx *sql.Tx, m inbox.Message) error { return execSQL(ctx, tx, m, text) }
	}
	const kill = "SELECT pg_terminate_backend(pg_backend_pid())"
	for name, tc := range map[string]struct {
		handler inbox.HandlerSQL
		class   inbox.Class // "" for success
		reason  string
		effects int
	}{
		"fails": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			return errors.Join(writeSQL(ctx, tx, m), errMailer)
		}, inbox.Transient, "the mailer is away", 0},
		"fails in SQL": {statement("SELECT 1/0"), inbox.Transient, "division by zero", 0},
		"ignores an error": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_ = execSQL(ctx, tx, m, "SELECT 1/0")
			return nil
		}, inbox.Transient, "ignored an error", 0},
		"commits": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			return errors.Join(writeSQL(ctx, tx, m), tx.Commit())
		}, inbox.Permanent, "ended its transaction", 1},
		"commits, and takes too long": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			err := errors.Join(writeSQL(ctx, tx, m), tx.Commit())
			<-ctx.Done()
			return err
		}, inbox.Permanent, "ended its transaction", 1},
		"rolls back": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			return errors.Join(writeSQL(ctx, tx, m), tx.Rollback())
		}, inbox.Permanent, "ended its transaction", 0},
		"commits by SQL": {statement("COMMIT"), inbox.Permanent, "ended its transaction", 1},
		"commits by SQL, and is killed": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			err := execSQL(ctx, tx, m, "COMMIT")
			_, killed := tx.ExecContext(ctx, kill)
			return errors.Join(err, killed)
		}, inbox.Permanent, "ended its transaction", 1},
		"rolls back by SQL": {statement("ROLLBACK"), inbox.Permanent, "ended its transaction", 0},
		"hangs":             {statement("SELECT pg_sleep(600)"), inbox.Timeout, "longer than Timeout", 0},
		"is deaf": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			defer func() { <-ctx.Done() }()
			return writeSQL(ctx, tx, m)
		}, inbox.Timeout, "longer than Timeout", 0},
		"breaks a deferred constraint": {statement("INSERT INTO orders VALUES (1), (1)"), inbox.Transient, "orders_id_key", 0},
		"panics": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_ = writeSQL(ctx, tx, m)
			panic("no such index")
		}, inbox.Panic, "no such index", 0},
		"leaves rows unread": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_ = writeSQL(ctx, tx, m)
			_, err := tx.QueryContext(ctx, "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck,rowserrcheck // that is the mistake
			return err
		}, inbox.Transient, "rows of a query unread", 0},
		"is killed each time": {statement(kill), inbox.Transient, "call the handler", 0},
		"is killed, and the error is lost": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_ = execSQL(ctx, tx, m, kill)
			return nil
		}, inbox.Transient, "the connection was lost", 0},
		"uses a savepoint": {func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_ = execSQL(ctx, tx, m, "SAVEPOINT a")
			_, _ = tx.ExecContext(ctx, "SELECT 1/0")
			_, err := tx.ExecContext(ctx, "ROLLBACK TO a")
			return err
		}, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newSchema(t)
			r := newRigSQL(t, url, url, tc.handler)
			_, err := r.pool.Exec(t.Context(), "CREATE TABLE orders (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			await.Must(t, err)
			if tc.class == inbox.Timeout || strings.Contains(name, "too long") {
				r.change(t, func(cfg *inbox.Config) { cfg.Timeout = time.Second })
			}
			await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1"}))
			if tc.class != "" {
				if f := r.published.failure(t); f.Class != tc.class || !strings.Contains(f.Reason, tc.reason) {
					t.Errorf("%+v, want class %s and reason %q", f, tc.class, tc.reason)
				}
			} else if r.outcomes("success") != 1 {
				t.Error("no success")
			}
			if n, records := r.effects(t, "1"), r.count(t, "SELECT count(*) FROM processed_messages"); n != tc.effects || records != tc.effects {
				t.Errorf("effects %d, records %d; want %d of both", n, records, tc.effects)
			}
			await.Until(t, "no transaction to be open, and no connection to be in use", func() bool {
				return r.count(t, "SELECT count(*) "+ours+" AND state LIKE 'idle in transaction%'") == 0 && r.cfg.DB.Stats().InUse == 0
			})
		})
	}
}

// When the connection of database/sql is lost in COMMIT, the next attempt finds out what became of
// it.
func TestConnectionOfSQLLostInCommit(t *testing.T) {
	t.Parallel()
	server, url := servers.SharedPostgres(t), newSchema(t)
	proxy, err := netproxy.Start(server.Addr())
	await.Must(t, err)
	t.Cleanup(proxy.Close)
	var calls atomic.Int64
	r := newRigSQL(t, strings.Replace(url, server.Addr(), proxy.Addr(), 1), url, func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
		calls.Add(1)
		return writeSQL(ctx, tx, m)
	})
	// The server holds COMMIT up until its answer is held up, too.
	_, err = r.pool.Exec(t.Context(), `CREATE TABLE latch ();
		CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN LOCK TABLE latch; RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER pass AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pass()`)
	await.Must(t, err)
	latch, err := r.pool.Begin(t.Context())
	await.Must(t, err)
	_, err = latch.Exec(t.Context(), "LOCK TABLE latch")
	await.Must(t, err)
	done := make(chan error)
	go func() { done <- r.handle(t.Context(), inbox.Message{ID: "1"}) }()
	await.Until(t, "the commit", func() bool { return r.count(t, waiting) == 1 })
	proxy.Hold(netproxy.Down)
	await.Must(t, latch.Rollback(t.Context()))
	await.Until(t, "the effect", func() bool { return r.effects(t, "1") == 1 })
	proxy.Reset()
	proxy.Release(netproxy.Down)
	await.Must(t, <-done)
	if n := r.effects(t, "1"); n != 1 || calls.Load() != 1 || r.outcomes("duplicate") != 1 {
		t.Errorf("effects %d, calls %d, duplicates %d; want one each", n, calls.Load(), r.outcomes("duplicate"))
	}
}
