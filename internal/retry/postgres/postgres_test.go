package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// database is a real one seen as a world. The relay's role may do no more than init grants it, and
// its settings are those that would lose what was committed.
type database struct {
	t    *testing.T
	conn *pgx.Conn // of the superuser
	pool *pgxpool.Pool
	url  string // of the relay's role
}

func newDatabase(t *testing.T, server *pgserver.Postgres, url string) *database {
	t.Helper()
	w := &database{t: t}
	role := "r" + strings.ToLower(rand.Text()[:12])
	admin := connect(t, server.URL("postgres"))
	if url == "" {
		// after its database
		t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "DROP ROLE "+role) })
		url = server.Database(t)
	}
	w.conn = connect(t, url)
	w.exec(`CREATE ROLE ` + role + ` LOGIN REPLICATION`)
	w.exec(`ALTER ROLE ` + role + ` SET synchronous_commit = off`)
	w.exec(`ALTER ROLE ` + role + ` SET default_transaction_read_only = on`)
	w.exec(`ALTER ROLE ` + role + ` SET default_transaction_isolation = serializable`)
	w.url = as(t, url, role)
	c := w.config(w.url)
	if err := setup.Init(await.Context(t), c, setup.InitOptions{OutboxTable: true, URL: url, Role: role, NoSlot: true}); err != nil {
		t.Fatal(err)
	}
	w.pool = w.newPool(w.url)
	return w
}

func as(t *testing.T, text, role string) string {
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(await.Context(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// relaySlot is no slot on the server, nor are those of whose rows the tests are: a new one waits
// for the transactions of all tests.
const relaySlot = "relay"

func (w *database) config(url string) source.Config {
	return source.Config{
		URL: url, Slot: relaySlot + fmt.Sprint(time.Now().UnixNano()), Publication: "p", Create: true, NoBackfill: true,
		WALSenderTimeout: 20 * time.Second, Log: zap.NewNop(),
		Tables: []decode.Table{{Schema: "public", Name: "outbox", Mapping: decode.Mapping{
			ID: decode.Names{Any: []string{"id"}}, Payload: decode.Names{Any: []string{"payload"}},
		}}},
	}
}

func (w *database) newPool(url string) *pgxpool.Pool {
	w.t.Helper()
	pool, err := source.Connect(await.Context(w.t), w.config(url))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool
}

func (w *database) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.conn.Exec(await.Context(w.t), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *database) scan(sql string, args []any, to ...any) bool {
	w.t.Helper()
	err := w.conn.QueryRow(await.Context(w.t), sql, args...).Scan(to...)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return err == nil
}

func (w *database) store(c store.Config) store.Store {
	return New(w.pool, source.BackendPID, c)
}

func (w *database) mirror(c store.Config) dlq.MirrorStore {
	return &dlq.Term{DB: w.pool, Slot: c.Slot, SystemID: c.SystemID, Epoch: c.Epoch}
}

func (w *database) raise(slot string) (epoch int64) {
	w.t.Helper()
	w.scan(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation, epoch) VALUES ($1, '1', 1, 'p', 'ready', 1, 1)
		ON CONFLICT (slot) DO UPDATE SET epoch = slots.epoch + 1 RETURNING epoch`, []any{slot}, &epoch)
	return epoch
}

func (w *database) Ask(c store.Config, kind store.RequestKind, n int64, route event.Route) (id int64) {
	w.t.Helper()
	w.scan(`INSERT INTO cdc_relay.request (slot, system_id, kind, n, route_name, routing_key, who, reason) VALUES ($1, $2, $3, $4, $5, $6, 'ann', 'why')
		ON CONFLICT (slot, system_id, n) WHERE state = 'waiting' DO NOTHING RETURNING id`, []any{c.Slot, c.SystemID, string(kind), n, route.Name, route.RoutingKey}, &id)
	return id
}

func (w *database) cancel(id int64) {
	w.t.Helper()
	w.exec(`UPDATE cdc_relay.request SET state = 'cancelled', done_at = now() WHERE id = $1 AND state = 'waiting'`, id)
}

func (w *database) Asked(id int64) (state, result string) {
	w.t.Helper()
	w.scan(`SELECT state, result FROM cdc_relay.request WHERE id = $1`, []any{id}, &state, &result)
	return state, result
}

func (w *database) audit(n int64) (list []string) {
	w.t.Helper()
	rows, err := w.conn.Query(await.Context(w.t), `SELECT who || ', ' || action, coalesce(commit_lsn, '0/0')::text, coalesce(idx, 0), why || ', ' || result
		FROM cdc_relay.audit WHERE n = $1 ORDER BY seq`, n)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var before, commit, after string
		var index int64
		if err := rows.Scan(&before, &commit, &index, &after); err != nil {
			w.t.Fatal(err)
		}
		lsn, err := pglogrepl.ParseLSN(commit)
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, before+", "+event.Position{Commit: lsn, Index: uint32(index)}.String()+", "+after)
	}
	return list
}

func (w *database) where(n int64) (state string) {
	w.t.Helper()
	w.scan(`SELECT 'deferred' FROM cdc_relay.retry WHERE n = $1 UNION ALL SELECT state FROM cdc_relay.dead_letter WHERE n = $1`, []any{n}, &state)
	return state
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	w := newDatabase(t, servers.SharedPostgres(t), "")
	for name, test := range conformance {
		t.Run(name, func(t *testing.T) { w.t = t; test(newBench(t, w)) })
	}
	for name, test := range map[string]func(*bench, *database){
		"fence while the epoch is raised": testFenceWhileRaised, "reads": testReads, "refused": testRefused, "not refused": testNotRefused,
		"no dead letter twice": testNoDeadLetterTwice, "durable": testDurable, "damaged": testDamaged, "cancelled meanwhile": testCancelledMeanwhile,
		"fence of what is held up": testFenceHeldUp, "purged rows": testPurgedRows, "purged requests": testPurgedRequests,
		"read's plan": testReadPlan, "copied": testCopied, "sent": testSent, "another sink": testAnotherSink, "other templates": testOtherTemplates,
		"secret of keys": testSecretOfKeys, "error text": testErrorText,
	} {
		t.Run(name, func(t *testing.T) { w.t = t; test(newBench(t, w), w) })
	}
}

// A row that is copied reads back as one that was deferred does, with any shape. When there is no
// next one for some reason, nothing is copied.
func testCopied(b *bench, w *database) {
	copyRows := func(b *bench, rows []*store.Row, end error) error {
		conn, err := pgx.ConnectConfig(await.Context(b.T), w.pool.Config().ConnConfig)
		b.must(err)
		defer conn.Close(context.Background())
		tx, err := conn.Begin(await.Context(b.T))
		b.must(err)
		i := -1
		n, err := b.Store.(*Store).Copy(await.Context(b.T), conn, &sync.Mutex{}, func() (*store.Row, error) {
			if i++; i == len(rows) {
				return nil, end
			}
			return rows[i], nil
		})
		if err != nil {
			b.must(tx.Rollback(await.Context(b.T)))
			return err
		}
		equal(b, "rows copied", n, int64(len(rows)))
		return tx.Commit(await.Context(b.T))
	}
	shaped := b.row("shaped", 1, 1)
	shaped.Event.Shape = &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{{Name: "id", TypeOID: 2950, Typmod: -1}}}
	b.must(copyRows(b, []*store.Row{shaped}, io.EOF))
	equal(b, "shape", b.runs(all, shaped.Group)[0].Rows[0].Event.Shape, shaped.Event.Shape)
	none, failed := b.row("none", 1, 1), errors.New("there is no next row")
	equal(b, "error", copyRows(b, []*store.Row{none}, failed), failed)
	equal(b, "rows", len(b.runs(all, none.Group)[0].Rows), 0)
	b.roundTrip(func(b *bench, rows ...*store.Row) {
		for _, r := range rows { // none waits for a time
			r.NextAttempt = time.Time{}
		}
		b.must(copyRows(b, rows, io.EOF))
	})
}

// A row that cannot be read is distinguished from a database that does not answer.
func testDamaged(b *bench, w *database) {
	b = b.with(func(c *store.Config) { c.Columns = []string{"tenant"} })
	row, deadLetter := b.row("k", 1, 1), b.row("k", 1, 1)
	deadLetter.Dead = true
	row.Event.Columns, deadLetter.Event.Columns = [][]byte{nil}, [][]byte{nil}
	b.deferRow(row, deadLetter)
	b.Ask(b.c, store.Replay, deadLetter.N, event.Route{})
	w.exec(`UPDATE cdc_relay.retry SET columns = '\xff' WHERE n = ` + fmt.Sprint(row.N))
	w.exec(`UPDATE cdc_relay.dead_letter SET columns = '\xff' WHERE n = ` + fmt.Sprint(deadLetter.N))
	if _, err := b.ReadRows(await.Context(b.T), wants(row.Group), 1, all, all); !store.IsRefused(err) || !errors.Is(err, errColumns) {
		b.Errorf("runs: %v", err)
	}
	if _, err := b.WaitingRequests(await.Context(b.T), 1, all); !store.IsRefused(err) || !errors.Is(err, errColumns) {
		b.Errorf("requests: %v", err)
	}
	list, err := b.WaitingRequests(await.Context(b.T), 1, 0)
	if b.must(err); len(list) != 1 || list[0].Row == nil || list[0].Row.N != deadLetter.N {
		b.Errorf("without what is sent: %+v", list)
	}
	ended, end := context.WithCancel(await.Context(b.T))
	end()
	if _, err := b.ReadRows(ended, wants(row.Group), 1, all, all); err == nil || store.IsRefused(err) {
		b.Errorf("no answer: %v", err)
	}
}

// What a former leader writes arrives while the next one is raising the epoch: it waits, and then
// changes nothing.
func testFenceWhileRaised(b *bench, w *database) {
	deferred, deadLetter, fresh, request := b.fenced()
	names := []string{}
	for name := range writes(b, deferred, deadLetter, fresh, request) {
		names = append(names, name)
	}
	epoch := b.c.Epoch
	for _, name := range names {
		former := b.with(func(c *store.Config) { c.Epoch = epoch })
		tx, err := w.conn.Begin(await.Context(b.T))
		b.must(err)
		_, err = tx.Exec(await.Context(b.T), `UPDATE cdc_relay.slots SET epoch = epoch + 1 WHERE slot = $1`, b.c.Slot)
		b.must(err)
		epoch++
		done := make(chan error, 1)
		go func() { done <- writes(former, deferred, deadLetter, fresh, request)[name]() }()
		w.untilLocked(b, name, func() bool { return len(done) > 0 })
		if len(done) > 0 {
			b.Fatalf("%s did not wait: %v", name, <-done)
		}
		b.must(tx.Commit(await.Context(b.T)))
		if err := <-done; !errors.Is(err, store.ErrFenced) {
			b.Errorf("%s: got %v", name, err)
		}
	}
	b.with(func(c *store.Config) { c.Epoch = epoch }).unchanged(deferred, deadLetter, fresh, request)
}

// What only reads takes no row lock and no transaction id, so it flushes nothing and waits for no
// synchronous standby: it may run in a session that may not write. It does not wait for a raise of
// the epoch either. Everything else is refused there.
func testReads(b *bench, w *database) {
	b = b.with(func(c *store.Config) { c.Block = true })
	deferred, deadLetter, fresh, request := b.fenced()
	c := w.pool.Config()
	c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(await.Context(b.T), c)
	b.must(err)
	b.Cleanup(pool.Close)
	readOnly := *b
	readOnly.world = &database{t: b.T, conn: w.conn, pool: pool}
	readOnly.Store = readOnly.store(b.c)
	for name, call := range writes(&readOnly, deferred, deadLetter, fresh, request) {
		if err := call(); source.SQLState(err) != "25006" {
			b.Errorf("%s does not write: %v", name, err)
		}
	}
	tx, err := w.conn.Begin(await.Context(b.T))
	b.must(err)
	_, err = tx.Exec(await.Context(b.T), `UPDATE cdc_relay.slots SET epoch = epoch + 1 WHERE slot = $1`, b.c.Slot)
	b.must(err)
	for name, call := range reads(&readOnly, deferred) {
		if err := call(); err != nil {
			b.Errorf("%s: %v", name, err)
		}
	}
	b.must(tx.Commit(await.Context(b.T)))
	for name, call := range reads(&readOnly, deferred) {
		if err := call(); !errors.Is(err, store.ErrFenced) {
			b.Errorf("%s after the raise: %v", name, err)
		}
	}
}

// A read begins in the index behind After. Otherwise it would pass, each time, all rows that were
// delivered and deleted while some session keeps an old snapshot.
func testReadPlan(b *bench, w *database) {
	b.deferRow(b.rows(20, "k", 1, 1)...)
	p := b.Store.(*Store)
	const run = 5
	args := append([]any{pgx.QueryExecModeCacheDescribe, p.cfg.Slot, p.cfg.Epoch, p.cfg.SystemID}, wantArrays(wants(b.row("k", 1, 1).Group))...)
	tx, err := w.pool.Begin(await.Context(b.T))
	b.must(err)
	b.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	// A sequential scan is the cheaper one for a few rows.
	_, err = tx.Exec(await.Context(b.T), `SET LOCAL enable_seqscan = off`)
	b.must(err)
	rows, err := tx.Query(await.Context(b.T), "EXPLAIN "+p.readSQL(), append(args, run, all, all, p.limits.largeFrom, run+1)...)
	b.must(err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.must(err)
	if !slices.ContainsFunc(plan, func(line string) bool {
		return strings.Contains(line, "Index Cond") && strings.Contains(line, "ordering_group") && strings.Contains(line, "ROW(incarnation, commit_lsn, idx) >")
	}) {
		b.Errorf("the plan is\n%s", strings.Join(plan, "\n"))
	}
}

// untilLocked returns once a session of the relay waits for a lock, or, if that is not nil, over.
func (w *database) untilLocked(b *bench, what string, over func() bool) {
	b.Helper()
	await.Until(b.T, what+" to wait for a lock", func() (waits bool) {
		b.must(w.pool.QueryRow(await.Context(b.T), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = current_user AND wait_event_type = 'Lock')`).Scan(&waits))
		return waits || over != nil && over()
	})
}

// The statement of a former leader is held up before it has begun, and the next one raises the
// epoch: it changes nothing.
func testFenceHeldUp(b *bench, w *database) {
	deferred, deadLetter, fresh, request := b.fenced()
	calls := methods(b, deferred, deadLetter, fresh, request)
	delete(calls, "Lease") // it needs none of the tables
	epoch := b.c.Epoch
	for name := range calls {
		former := b.with(func(c *store.Config) { c.Epoch = epoch })
		tx, err := w.conn.Begin(await.Context(b.T))
		b.must(err)
		_, err = tx.Exec(await.Context(b.T), `LOCK TABLE cdc_relay.retry, cdc_relay.dead_letter, cdc_relay.request`)
		b.must(err)
		done := make(chan error, 1)
		go func() { done <- methods(former, deferred, deadLetter, fresh, request)[name]() }()
		w.untilLocked(b, name, nil)
		b.must(w.pool.QueryRow(await.Context(b.T), `UPDATE cdc_relay.slots SET epoch = epoch + 1 WHERE slot = $1 RETURNING epoch`, b.c.Slot).Scan(&epoch))
		b.must(tx.Commit(await.Context(b.T)))
		if err := <-done; !errors.Is(err, store.ErrFenced) {
			b.Errorf("%s: got %v", name, err)
		}
	}
	b.with(func(c *store.Config) { c.Epoch = epoch }).unchanged(deferred, deadLetter, fresh, request)
}

// A row that the database refuses leaves the others out of the table, and is named when it is
// alone.
func testRefused(b *bench, w *database) {
	rows := b.rows(3, "k", 1, 1)
	for _, table := range []string{"retry", "dead_letter"} {
		w.exec(fmt.Sprintf(`ALTER TABLE cdc_relay.%s ADD CONSTRAINT refuses CHECK (n <> %d)`, table, rows[1].N))
		b.Cleanup(func() { w.exec(`ALTER TABLE cdc_relay.` + table + ` DROP CONSTRAINT refuses`) })
	}
	var refused *store.Refused
	err := b.Defer(await.Context(b.T), rows)
	if !errors.As(err, &refused) || refused.Row != nil || !strings.Contains(refused.Error(), "refuses") {
		b.Fatalf("got %v", err)
	}
	b.wantWhere("", rows...)
	for i, row := range rows {
		row.Dead = i == 2
		err := b.Defer(await.Context(b.T), []*store.Row{row})
		if i != 1 && err != nil || i == 1 && (!errors.As(err, &refused) || refused.Row != row) {
			b.Fatalf("row %d: got %v", i, err)
		}
	}
	b.wantWhere("deferred", rows[0])
	b.wantWhere("open", rows[2])
	w.exec(`ALTER TABLE cdc_relay.dead_letter DROP CONSTRAINT refuses`)
	w.exec(fmt.Sprintf(`ALTER TABLE cdc_relay.dead_letter ADD CONSTRAINT refuses CHECK (n <> %d)`, rows[0].N))
	err = b.ApplyResults(await.Context(b.T), []store.Result{{Row: rows[0], Kind: store.Dead}})
	if !errors.As(err, &refused) || refused.Row != rows[0] {
		b.Fatalf("got %v", err)
	}
	b.wantWhere("deferred", rows[0])
}

// What is not the row's fault is no refusal.
func testNotRefused(b *bench, w *database) {
	row := b.row("k", 1, 1)
	var refused *store.Refused
	fails := func(what string, c context.Context) {
		b.Helper()
		if err := b.Defer(c, []*store.Row{row}); err == nil || errors.As(err, &refused) || errors.Is(err, store.ErrFenced) {
			b.Fatalf("%s: got %v", what, err)
		}
	}
	role := w.pool.Config().ConnConfig.User
	w.exec(`REVOKE INSERT ON cdc_relay.retry FROM ` + role)
	fails("no right", await.Context(b.T))
	w.exec(`GRANT INSERT ON cdc_relay.retry TO ` + role)
	c, cancel := context.WithCancel(await.Context(b.T))
	cancel()
	fails("cancelled", c)
	tx, err := w.conn.Begin(await.Context(b.T))
	b.must(err)
	_, err = tx.Exec(await.Context(b.T), `LOCK cdc_relay.retry`)
	b.must(err)
	c, cancel = context.WithTimeout(await.Context(b.T), 100*time.Millisecond)
	defer cancel()
	fails("no answer", c)
	b.must(tx.Rollback(await.Context(b.T)))
	b.deferRow(row)
	b.wantRows(row.Group, row)
}

// A row is not deleted when its dead letter cannot be inserted.
func testNoDeadLetterTwice(b *bench, w *database) {
	row := b.row("k", 1, 1)
	b.deferRow(row)
	w.exec(`INSERT INTO cdc_relay.dead_letter (slot, system_id, ` + fieldNames() + `, deferred_at) SELECT slot, system_id, ` +
		strings.Replace(fieldNames(), " n,", " n + 1000000000000,", 1) + `, deferred_at FROM cdc_relay.retry WHERE n = ` + fmt.Sprint(row.N))
	var refused *store.Refused
	if err := b.ApplyResults(await.Context(b.T), []store.Result{{Row: row, Kind: store.Dead}}); !errors.As(err, &refused) {
		b.Fatalf("got %v", err)
	}
	b.wantWhere("deferred", row)
}

// An operator cancels a request in the moment in which it is carried out: either he is told that it
// is done, or it is not done.
func testCancelledMeanwhile(b *bench, w *database) {
	deadLetter := b.deadLetter("k")
	id := b.Ask(b.c, store.Discard, deadLetter.N, event.Route{})
	answers := []store.Answer{{Request: b.request(id)}}
	tx, err := w.conn.Begin(await.Context(b.T))
	b.must(err)
	_, err = tx.Exec(await.Context(b.T), `UPDATE cdc_relay.request SET state = 'cancelled', done_at = now() WHERE id = $1 AND state = 'waiting'`, id)
	b.must(err)
	done := make(chan []bool, 1)
	go func() {
		took, err := b.AnswerRequests(await.Context(b.T), answers)
		if err != nil {
			b.Error(err)
		}
		done <- took
	}()
	w.untilLocked(b, "the answer", func() bool { return len(done) > 0 })
	b.must(tx.Commit(await.Context(b.T)))
	equal(b, "done", <-done, []bool{false})
	b.wantAsked(id, "cancelled", "")
	b.wantWhere("open", deadLetter)
	equal(b, "audit", len(b.audit(deadLetter.N)), 0)
}

// A commit is durable, whatever the role's settings say: the pool's sessions have their own.
func testDurable(b *bench, w *database) {
	for name, want := range map[string]string{"synchronous_commit": "on", "transaction_read_only": "off", "transaction_isolation": "read committed"} {
		var got string
		b.must(w.pool.QueryRow(await.Context(b.T), `SELECT current_setting($1)`, name).Scan(&got))
		equal(b, name, got, want)
	}
}

// through is a pool of the relay's through a proxy, which hides the backends' process ids.
func (w *database) through() (*pgxpool.Pool, *netproxy.Proxy) {
	w.t.Helper()
	u, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := netproxy.Start(u.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Close)
	p.HideProcessIDs()
	u.Host = p.Addr()
	c := w.config(u.String())
	c.Slot = "doubtful" // the pools of one relay have one name
	pool, err := source.Connect(await.Context(w.t), c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool, p
}

// The answer is lost: the outcome is unknown, and the same call again changes nothing.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	w := newDatabase(t, servers.SharedPostgres(t), "")
	for name, call := range unknown {
		t.Run(name, func(t *testing.T) {
			w.t = t
			b := newBench(t, w)
			pool, proxy := w.through()
			made := New(pool, source.BackendPID, b.c)
			do, check := call(b)
			proxy.Hold(netproxy.Down)
			c, cancel := context.WithTimeout(await.Context(t), 500*time.Millisecond)
			defer cancel()
			var refused *store.Refused
			if err := do(c, made); err == nil || errors.As(err, &refused) || errors.Is(err, store.ErrFenced) {
				t.Fatalf("got %v", err)
			}
			proxy.Release(netproxy.Down)
			for range 2 {
				b.must(do(await.Context(t), made))
			}
			check()
			equal(t, "doubts left", len(made.doubtfulSessions), 0)
		})
	}
}

// A statement is cut off on its way. It is made again, what it wrote is delivered and deleted, and
// then it arrives: its session must be gone.
func TestStatementLate(t *testing.T) {
	t.Parallel()
	w := newDatabase(t, servers.SharedPostgres(t), "")
	for name, call := range unknown {
		t.Run(name, func(t *testing.T) {
			w.t = t
			b := newBench(t, w)
			pool, proxy := w.through()
			second, _ := w.through()
			made := New(pool, source.BackendPID, b.c)
			do, check := call(b)
			// Once before, so that the session knows the statement and all of it goes in one piece.
			other, _ := call(b)
			b.must(other(await.Context(t), made))
			var pid int
			b.must(pool.QueryRow(await.Context(t), `SELECT pg_backend_pid()`).Scan(&pid))
			equal(t, "connections", pool.Stat().TotalConns(), 1)
			proxy.Hold(netproxy.Up)
			// the driver asks the server to cancel it: that does not arrive
			proxy.SetTarget("127.0.0.1:1")
			held := await.Context(t)
			c, cancel := context.WithCancel(held)
			go func() {
				defer cancel() // once it is on its way
				if err := proxy.WaitHeld(held, netproxy.Up, 1); err != nil {
					t.Error(err)
				}
			}()
			if err := do(c, made); err == nil {
				t.Fatal("no error")
			}
			equal(t, "doubts", len(made.doubtfulSessions), 1)
			made.pool = second
			b.must(do(await.Context(t), made))
			check()
			if name == "defer" {
				for _, row := range b.runs(all, b.fedGroup())[0].Rows {
					b.must(made.ApplyResults(await.Context(t), []store.Result{{Row: row, Kind: store.Delivered}}))
				}
			}
			proxy.Release(netproxy.Up)
			// The session ends when it has done what came late.
			await.Until(t, "the session of the lost statement to end", func() (ended bool) {
				b.must(second.QueryRow(await.Context(t), `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid).Scan(&ended))
				return ended
			})
			if name == "defer" {
				b.wantRows(b.fedGroup()) // it is not there again
			} else {
				check()
			}
		})
	}
}

func (b *bench) fedGroup() uint64 {
	group, _ := b.c.Scope.Group(&event.Event{Hash: uint64(*event.Digest([]byte("fed"))), Ordered: true}, 1)
	return group
}

// unknown are calls whose outcome may get lost, each with a check that it was carried out once.
var unknown = map[string]func(b *bench) (do func(context.Context, store.Store) error, check func()){
	"defer": func(b *bench) (func(context.Context, store.Store) error, func()) {
		row, deadLetter := b.row("fed", 1, 1), b.row("dead", 1, 1)
		deadLetter.Dead = true
		return func(c context.Context, s store.Store) error {
				return s.Defer(c, []*store.Row{row, deadLetter})
			},
			func() { b.wantWhere("deferred", row); b.wantWhere("open", deadLetter) }
	},
	"apply": func(b *bench) (func(context.Context, store.Store) error, func()) {
		rows := b.rows(3, fmt.Sprint("apply", b.at), 1, 1)
		b.deferRow(rows...)
		results := []store.Result{{Row: rows[0], Kind: store.Delivered}, {Row: rows[1], Kind: store.Dead}, {Row: rows[2], Kind: store.Backoff, Reason: "invalid", Attempts: 1, After: time.Hour}}
		return func(c context.Context, s store.Store) error { return s.ApplyResults(c, results) },
			func() {
				b.wantWhere("", rows[0])
				b.wantWhere("open", rows[1])
				b.wantRows(rows[2].Group, rows[2])
				equal(b, "attempts", b.runs(all, rows[2].Group)[0].Rows[0].Attempts, 1)
			}
	},
	"answer": func(b *bench) (func(context.Context, store.Store) error, func()) {
		deadLetter := b.deadLetter("k")
		id := b.Ask(b.c, store.Discard, deadLetter.N, event.Route{})
		a := []store.Answer{{Request: b.request(id)}}
		return func(c context.Context, s store.Store) error {
				done, err := s.AnswerRequests(c, a)
				if err == nil && !slices.Equal(done, []bool{true}) {
					b.Errorf("done %v", done)
				}
				return err
			}, func() {
				b.wantWhere("discarded", deadLetter)
				equal(b, "audit", len(b.audit(deadLetter.N)), 1)
			}
	},
	"expire": func(b *bench) (func(context.Context, store.Store) error, func()) {
		deadLetter := b.deadLetter("k")
		b.answer(b.Ask(b.c, store.Discard, deadLetter.N, event.Route{}), true, sink.Outcome{})
		return func(c context.Context, s store.Store) error {
				_, err := s.ExpireDeadLetters(c, time.Nanosecond, 10)
				return err
			},
			func() { b.wantWhere("purged", deadLetter) }
	},
}

// The text of a server's error shows no values, whatever stands in it, and names what an operator
// has to know.
func TestErrorsShowNoValues(t *testing.T) {
	for _, tc := range []struct{ code, message, want string }{
		{"22P02", `invalid input syntax for type integer: "secret"`, "invalid input syntax for type integer: … (SQLSTATE"},
		{"22P02", `invalid input syntax for type integer: "a"b secret"`, "invalid input syntax for type integer: … (SQLSTATE"},
		{"22P02", `invalid input syntax for type integer: "{"who": "secret", "and":` + "\n" + `"secret"}"`, "invalid input syntax for type integer: … (SQLSTATE"},
		{"22P02", `invalid input syntax for type integer: "secret`, "ERROR: … (SQLSTATE 22P02)"},
		{"22P02", `ungültige Eingabesyntax für Typ integer: »secret«`, "ERROR: … (SQLSTATE 22P02)"},
		{"22P02", `sintassi non valida: «secret»`, "ERROR: … (SQLSTATE 22P02)"},
		{"22003", `value "secret" is out of range for type integer`, "value … is out of range for type integer"},
		{"22001", `value too long for type character varying(10)`, "value too long for type character varying(10)"},
		{"22021", `invalid byte sequence for encoding "UTF8": 0xe4 0x20`, "invalid byte sequence for encoding …: …"},
		{"P0001", `bad secret`, "ERROR: … (SQLSTATE P0001)"},
		{"P0001", ``, "ERROR: … (SQLSTATE P0001)"},
		{"P0004", `secret is none`, "ERROR: … (SQLSTATE P0004)"},
		{"45000", `bad secret`, "ERROR: … (SQLSTATE 45000)"},
		{"XX000", `bad secret`, "ERROR: … (SQLSTATE XX000)"},
		{"42601", `syntax error at or near "secret"`, "ERROR: … (SQLSTATE 42601)"},
		{"23514", `new row for relation "retry" violates check constraint "amount"`, `new row for relation "retry" violates check constraint "amount"`},
		{"42501", `permission denied for table "retry"`, `permission denied for table "retry"`},
		{"42P01", `relation "cdc_relay.retry" does not exist`, `relation "cdc_relay.retry" does not exist`},
		{"55P03", `canceling statement due to lock timeout`, `canceling statement due to lock timeout`},
		{"57014", `canceling statement due to statement timeout`, `canceling statement due to statement timeout`},
		{"53100", `could not extend file "base/1/2": No space left on device`, `could not extend file "base/1/2": No space left on device`},
		{"25006", `cannot execute INSERT in a read-only transaction`, `cannot execute INSERT in a read-only transaction`},
		{"54000", `index row size 2712 exceeds btree version 4 maximum 2704 for index "x"`, `for index "x"`},
	} {
		server := &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: tc.code, Message: tc.message, Detail: "Failing row contains (secret)."}
		err := fmt.Errorf("defer rows: %w", redacted{fmt.Errorf("run: %w", server)})
		if text := err.Error(); !strings.Contains(text, tc.want) || strings.Contains(text, "secret") || !strings.Contains(text, tc.code) || !strings.HasPrefix(text, "defer rows: run: ERROR: ") {
			t.Errorf("%s: %s", tc.message, text)
		}
		var again *pgconn.PgError
		if !errors.As(err, &again) || again != server {
			t.Errorf("%s: the server's error is not to be had any more", tc.message)
		}
	}
}

// A user's function raises any text, whatever the SQLSTATE: only the function is named, and what it
// says it is about.
func TestErrorsOfFunctions(t *testing.T) {
	server := &pgconn.PgError{
		Severity: "ERROR", Code: "23514", Message: "bad secret", File: "pl_exec.c", Routine: "exec_stmt_raise",
		Where: "PL/pgSQL function public.audit() line 3 at RAISE\nSQL statement \"SELECT 'secret'\"", SchemaName: "cdc_relay", TableName: "retry", ConstraintName: "amount",
	}
	want := `ERROR: … (SQLSTATE 23514), function public.audit, schema "cdc_relay", table "retry", constraint "amount"; the server's log has its text`
	if text := (redacted{server}).Error(); text != want {
		t.Errorf("%s, want %s", text, want)
	}
	server.File, server.Routine = "execMain.c", "ExecConstraints"
	if text := (redacted{server}).Error(); text != "ERROR: bad secret (SQLSTATE 23514)" {
		t.Errorf("the server's own words are not shown: %s", text)
	}
}

// memoryWorld is a Database seen as a world.
type memoryWorld struct{ db *memorytest.Database }

func (w *memoryWorld) store(c store.Config) store.Store { return w.db.Store(c) }
func (w *memoryWorld) mirror(c store.Config) dlq.MirrorStore {
	return w.db.Store(c)
}
func (w *memoryWorld) raise(slot string) int64 { return w.db.RaiseEpoch(slot) }
func (w *memoryWorld) cancel(id int64)         { w.db.Cancel(id) }
func (w *memoryWorld) Asked(id int64) (string, string) {
	q, _ := w.db.RequestByID(id)
	return q.State, q.Result
}

func (w *memoryWorld) Ask(c store.Config, kind store.RequestKind, n int64, route event.Route) int64 {
	return w.db.AddRequest(memorytest.Request{Slot: c.Slot, System: c.SystemID, Kind: kind, N: n, Route: route, Who: "ann", Why: "why"})
}

func (w *memoryWorld) audit(n int64) (list []string) {
	for _, a := range w.db.Audit() {
		if a.N == n {
			list = append(list, fmt.Sprintf("%s, %s, %s, %s, %s", a.Who, a.Action, a.Position, a.Why, a.Result))
		}
	}
	return list
}

func (w *memoryWorld) where(n int64) string { return w.db.StateOf(n) }

// The shape is stored as earlier versions store it, as an extra column of this name: a row of
// theirs is read, wherever the shape stands in it, and they read a row of ours. What cannot be read
// costs the row nothing but its shape.
func TestShapeIsStoredAsBefore(t *testing.T) {
	text := `{"schema":"public","table":"outbox","columns":[{"name":"id","oid":2950,"mod":-1}]}`
	shape := &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{{Name: "id", TypeOID: 2950, Typmod: -1}}}
	before := func(text []byte) []byte { // as they write it: the names sorted
		return dlq.AppendColumns(nil, []string{"a", "cdc_relay.shape", "tenant"}, [][]byte{[]byte("A"), text, []byte("t")})
	}
	var s shapes
	ours := dlq.AppendShape(dlq.AppendColumns(nil, []string{"a", "tenant"}, [][]byte{[]byte("A"), []byte("t")}), s.encoded(shape))
	if want := dlq.AppendColumns(nil, []string{"a", "tenant", "cdc_relay.shape"}, [][]byte{[]byte("A"), []byte("t"), []byte(text)}); string(ours) != string(want) {
		t.Errorf("it is stored as %q, want %q", ours, want)
	}
	for name, c := range map[string]struct {
		stored []byte
		want   *event.Shape
	}{
		"ours": {ours, shape}, "theirs": {before([]byte(text)), shape}, "theirs of a message": {before(nil), nil}, "of a later version": {before([]byte(`{"schema":1}`)), nil},
	} {
		for range 2 { // the second time it is known
			columns, text, err := readColumns(c.stored, []string{"tenant", "a"})
			if got := s.parsed(text); err != nil || !reflect.DeepEqual(got, c.want) || string(columns[0]) != "t" || string(columns[1]) != "A" {
				t.Errorf("%s: %+v, %q, %v", name, got, columns, err)
			}
		}
	}
	if first, second := s.parsed([]byte(text)), s.parsed([]byte(text)); first != second {
		t.Error("two rows of a table have two shapes")
	}
	for i := range 2 * maxShapes {
		s.parsed(event.AppendShape(nil, &event.Shape{Columns: []event.ColumnShape{{Typmod: int32(i)}}}))
		s.encoded(&event.Shape{})
	}
	if len(s.read) > maxShapes || len(s.texts) > maxShapes {
		t.Errorf("%d and %d shapes are kept", len(s.read), len(s.texts))
	}
	if _, _, err := readColumns(ours[:len(ours)-1], nil); err == nil {
		t.Error("a row that is cut is read")
	}
}
