package core

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// A failure that the database may have caused is repeated at once, and counts as an attempt when it
// does not end: a statement may kill its backend each time.
func TestRepeats(t *testing.T) {
	t.Parallel()
	kills := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	}
	for name, fails := range map[string]func(context.Context, pgx.Tx) error{
		"killed": kills,
		"killed, and the error is lost": func(ctx context.Context, tx pgx.Tx) error {
			_ = kills(ctx, tx)
			return nil
		},
		"killed, and the error is another": func(ctx context.Context, tx pgx.Tx) error {
			_ = kills(ctx, tx)
			return errors.New("no answer")
		},
		"cannot be serialized": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "DO $$BEGIN RAISE SQLSTATE '40001'; END$$")
			return err
		},
		"disk full": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "DO $$BEGIN RAISE SQLSTATE '53100'; END$$")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
				if err := write(ctx, tx, m); err != nil {
					return err
				}
				if calls.Add(1); m.Type == "always" || calls.Load() == 1 {
					return fails(ctx, tx)
				}
				return nil
			}, nil)
			await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1"}))
			if n := r.effects(t, "1"); n != 1 || calls.Load() != 2 || r.outcomes("success") != 1 {
				t.Errorf("effects %d, calls %d, successes %d", n, calls.Load(), r.outcomes("success"))
			}
			calls.Store(0)
			await.Must(t, r.handle(t.Context(), inbox.Message{ID: "2", Type: "always"}))
			if f := r.published.failure(t); f.Class != inbox.Transient || f.Level == 0 || calls.Load() != 4 {
				t.Errorf("%+v after %d calls", f, calls.Load())
			}
		})
	}
}

// While the database is away a message waits in its place, and no attempt is spent.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	r, proxy, _ := newProxied(t, write)
	proxy.Cut()
	done := make(chan error)
	go func() { done <- r.handle(t.Context(), inbox.Message{ID: "1"}) }()
	ready := make(chan error)
	go func() { ready <- r.Transport("rabbitmq").Ready(t.Context()) }()
	await.Until(t, "the inbox to say so", func() bool { return r.said.has("processing waits") })
	if up := r.metric(`cdc_relay_inbox_database_up{service="notifier"}`); up != 0 {
		t.Errorf("cdc_relay_inbox_database_up is %v", up)
	}
	await.Must(t, proxy.Restore())
	await.Must(t, <-done)
	await.Must(t, <-ready)
	if up := r.metric(`cdc_relay_inbox_database_up{service="notifier"}`); up != 1 || r.outcomes("success") != 1 || len(r.published.retries) != 0 {
		t.Errorf("up %v, successes %d, published %v", up, r.outcomes("success"), r.published.retries)
	}
	if n := strings.Count(r.said.String(), "records events again"); n != 1 {
		t.Errorf("want one line that it answers again:\n%s", &r.said)
	}
}

// A record that another session has locked is no outage, and the log says which event waits. The
// server ends a session that does nothing for longer than a handler may.
func TestRecordLocked(t *testing.T) {
	t.Parallel()
	var idle string
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if err := tx.QueryRow(ctx, "SHOW idle_in_transaction_session_timeout").Scan(&idle); err != nil {
			return err
		}
		return write(ctx, tx, m)
	}, func(cfg *inbox.Config) { cfg.Timeout = 4 * time.Second }) // a busy machine needs it
	tx, err := r.pool.Begin(t.Context()) // of a process that is frozen in its handler
	await.Must(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO processed_messages (service, id) VALUES ('notifier', '1')")
	await.Must(t, err)
	done := make(chan error)
	go func() { done <- r.handle(t.Context(), inbox.Message{ID: "1"}) }()
	await.Until(t, "the inbox to say so", func() bool { return r.said.has("another session holds the record") })
	if !r.said.has("event_id=1") {
		t.Errorf("the event is not named:\n%s", &r.said)
	}
	await.Must(t, tx.Rollback(t.Context()))
	await.Must(t, <-done)
	if n := r.effects(t, "1"); n != 1 || r.outcomes("success") != 1 || idle != "9s" {
		t.Errorf("effects %d, successes %d, a session may be idle for %s; want 1, 1 and 9s", n, r.outcomes("success"), idle)
	}
}

// A stop ends the wait for the database.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	r, proxy, _ := newProxied(t, write)
	proxy.Cut()
	for name, call := range map[string]func(context.Context) error{
		"Handle": func(ctx context.Context) error { return r.handle(ctx, inbox.Message{ID: "1"}) },
		"Ready":  r.Transport("rabbitmq").Ready,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if n := len(r.published.retries) + len(r.published.dead); n != 0 {
		t.Errorf("%d messages were published", n)
	}
}

// When the connection is lost in COMMIT, the next attempt finds out what became of it.
func TestConnectionLostInCommit(t *testing.T) {
	t.Parallel()
	var proxy *netproxy.Proxy
	var calls atomic.Int64
	r, proxy, direct := newProxied(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		calls.Add(1)
		err := write(ctx, tx, m)
		proxy.Hold(netproxy.Down) // the answer to COMMIT
		return err
	})
	done := make(chan error)
	go func() { done <- r.handle(t.Context(), inbox.Message{ID: "1"}) }()
	await.Until(t, "the commit", func() bool {
		var n int
		await.Must(t, direct.QueryRow(t.Context(), "SELECT count(*) FROM effects").Scan(&n))
		return n == 1
	})
	proxy.Reset()
	proxy.Release(netproxy.Down)
	await.Must(t, <-done)
	if n := r.effects(t, "1"); n != 1 || calls.Load() != 1 || r.outcomes("duplicate") != 1 {
		t.Errorf("effects %d, calls %d, duplicates %d; want one each", n, calls.Load(), r.outcomes("duplicate"))
	}
}

// newProxied makes a rig whose pool goes through a proxy, and a pool that does not.
func newProxied(t *testing.T, handler inbox.Handler) (*rig, *netproxy.Proxy, *pgxpool.Pool) {
	t.Helper()
	server := servers.SharedPostgres(t)
	url := newSchema(t)
	proxy, err := netproxy.Start(server.Addr())
	await.Must(t, err)
	t.Cleanup(proxy.Close)
	direct, err := pgxpool.New(t.Context(), url)
	await.Must(t, err)
	t.Cleanup(direct.Close)
	return newRigAt(t, strings.Replace(url, server.Addr(), proxy.Addr(), 1), handler, nil), proxy, direct
}

// After a promotion a connection may be to what is a standby now: it is not used again.
func TestReadOnlyConnectionIsLeft(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, newSchema(t)+"&pool_max_conns=1", write, nil)
	for _, call := range []func() error{
		func() error { return r.handle(t.Context(), inbox.Message{ID: "1"}) },
		func() error { return r.Transport("rabbitmq").Ready(t.Context()) },
	} {
		_, err := r.pool.Exec(t.Context(), "SET default_transaction_read_only = on")
		await.Must(t, err)
		await.Must(t, call())
	}
}

// Under stricter isolation the second of two at once meets a serialization failure where it would
// have found the record. That is no outage of the database.
func TestStricterIsolation(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	r := newRigAt(t, newSchema(t)+"&default_transaction_isolation=serializable", func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		begun <- struct{}{}
		<-goOn
		return write(ctx, tx, m)
	}, nil)
	done := make(chan error)
	handle := func() { done <- r.handle(t.Context(), inbox.Message{ID: "1"}) }
	go handle()
	<-begun
	go handle()
	await.Until(t, "the other to wait for the record", func() bool { return r.count(t, waiting) == 1 })
	close(goOn)
	await.Must(t, <-done)
	await.Must(t, <-done)
	if n := r.effects(t, "1"); n != 1 || r.outcomes("duplicate") != 1 || r.said.has("waits") {
		t.Errorf("effects %d, duplicates %d, logged:\n%s", n, r.outcomes("duplicate"), &r.said)
	}
}

// ours is of the sessions of this test, waiting counts those that wait for a lock.
const (
	ours    = "FROM pg_stat_activity WHERE application_name = current_setting('application_name')"
	waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid " + ours + ")"
)

// What waiting does not cure is an error at once, with its fix.
func TestNotReady(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ options, before, want string }{
		"no table":      {"", "DROP TABLE processed_messages", "CREATE TABLE IF NOT EXISTS \"processed_messages\" ("},
		"another table": {"", "ALTER TABLE processed_messages DROP COLUMN content_hash", "content_hash bytea"},
		"takes no row":  {"", "CREATE RULE keep AS ON INSERT TO processed_messages DO INSTEAD NOTHING", "trigger or a rule"},
		"keeps rows elsewhere": {"", `CREATE TABLE child () INHERITS (processed_messages);
			CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO child VALUES (NEW.*); RETURN NULL; END';
			CREATE TRIGGER keep BEFORE INSERT ON processed_messages FOR EACH ROW EXECUTE FUNCTION keep()`, "trigger or a rule"},
		"not logged":            {"", "ALTER TABLE processed_messages SET UNLOGGED", "SET LOGGED"},
		"asynchronous":          {"&synchronous_commit=off", "", "synchronous_commit is off"},
		"login refused":         {"&user=nobody_at_all", "", "nobody_at_all"},
		"ready":                 {"", "", "-"},
		"flushed on one server": {"&synchronous_commit=local", "", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newSchema(t)
			r := newRigAt(t, url, write, nil)
			if tc.before != "" {
				_, err := r.pool.Exec(t.Context(), tc.before)
				await.Must(t, err)
			}
			pool, err := pgxpool.New(t.Context(), url+tc.options)
			await.Must(t, err)
			t.Cleanup(pool.Close)
			r.change(t, func(cfg *inbox.Config) { cfg.Pool = pool })
			err = r.Transport("kafka").Ready(t.Context())
			if tc.want == "-" {
				await.Must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ready: %v, want %q", err, tc.want)
			}
		})
	}
}

// The rights that inbox.Schema names suffice, and nobody begins without them.
func TestRights(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	role := "service_" + strings.ToLower(rand.Text()[:12])
	schema := r.pool.Config().ConnConfig.RuntimeParams["search_path"]
	exec := func(ctx context.Context, sql string) {
		t.Helper()
		_, err := r.pool.Exec(ctx, sql)
		await.Must(t, err)
	}
	exec(t.Context(), "CREATE ROLE "+role+"; GRANT USAGE ON SCHEMA "+schema+" TO "+role+"; GRANT INSERT ON effects TO "+role)
	t.Cleanup(func() { exec(await.Context(t), "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	pool, err := pgxpool.New(t.Context(), r.pool.Config().ConnString()+"&role="+role)
	await.Must(t, err)
	t.Cleanup(pool.Close)
	r.change(t, func(cfg *inbox.Config) { cfg.Pool = pool })
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		if err := r.Transport("rabbitmq").Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("ready without the right to %s: %v", right, err)
		}
		exec(t.Context(), "GRANT "+right+" ON processed_messages TO "+role)
	}
	await.Must(t, r.Transport("rabbitmq").Ready(t.Context()))
	for range 2 {
		await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1"}))
	}
	_, err = r.Prune(t.Context())
	await.Must(t, err)
	if r.outcomes("success") != 1 || r.outcomes("duplicate") != 1 {
		t.Errorf("successes %d, duplicates %d; want one each", r.outcomes("success"), r.outcomes("duplicate"))
	}
}
