package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
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
	retrystore "github.com/cdc-relay/cdc-relay/internal/retry/store"
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

func (w *database) store(c retrystore.Config) retrystore.Store {
	return New(w.pool, source.BackendPID, c)
}

func (w *database) mirror(c retrystore.Config) dlq.MirrorStore {
	return &dlq.MirrorPostgres{DB: w.pool, Slot: c.Slot, SystemID: c.SystemID, Epoch: c.Epoch}
}

func (w *database) raise(slot string) (epoch int64) {
	w.t.Helper()
	w.scan(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation, epoch) VALUES ($1, '1', 1, 'p', 'ready', 1, 1)
		ON CONFLICT (slot) DO UPDATE SET epoch = slots.epoch + 1 RETURNING epoch`, []any{slot}, &epoch)
	return epoch
}

func (w *database) Ask(c retrystore.Config, kind retrystore.RequestKind, n int64, route event.Route) (id int64) {
	w.t.Helper()
	w.scan(`INSERT INTO cdc_relay.request (slot, system_id, kind, n, route_name, routing_key, who, reason) VALUES ($1, $2, $3, $4, $5, $6, 'ann', 'why')
		ON CONFLICT (n) WHERE state = 'waiting' DO NOTHING RETURNING id`, []any{c.Slot, c.SystemID, string(kind), n, route.Name, route.RoutingKey}, &id)
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
	w := newDatabase(t, servers.SharedPostgres(t), "")
	for name, test := range conformance {
		t.Run(name, func(t *testing.T) { w.t = t; test(newBench(t, w)) })
	}
	for name, test := range map[string]func(*bench, *database){
		"fence while the epoch is raised": testFenceWhileRaised, "reads": testReads, "refused": testRefused, "not refused": testNotRefused,
		"no dead letter twice": testNoDeadLetterTwice, "durable": testDurable, "damaged": testDamaged, "cancelled meanwhile": testCancelledMeanwhile,
		"fence of what is held up": testFenceHeldUp, "purged rows": testPurgedRows, "purged requests": testPurgedRequests,
		"read's plan": testReadPlan, "copied": testCopied, "sent": testSent, "another sink": testAnotherSink, "other templates": testOtherTemplates,
		"secret of keys": testSecretOfKeys,
	} {
		t.Run(name, func(t *testing.T) { w.t = t; test(newBench(t, w), w) })
	}
}

// A row that is copied reads back as one that was deferred does, with any shape. When there is no
// next one for some reason, nothing is copied.
func testCopied(b *bench, w *database) {
	copyRows := func(b *bench, rows []*retrystore.Row, end error) error {
		conn, err := pgx.ConnectConfig(await.Context(b.T), w.pool.Config().ConnConfig)
		b.must(err)
		defer conn.Close(context.Background())
		tx, err := conn.Begin(await.Context(b.T))
		b.must(err)
		i := -1
		n, err := b.Store.(*Store).Copy(await.Context(b.T), conn, &sync.Mutex{}, func() (*retrystore.Row, error) {
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
	b.must(copyRows(b, []*retrystore.Row{shaped}, io.EOF))
	equal(b, "shape", b.runs(all, shaped.Group)[0].Rows[0].Event.Shape, shaped.Event.Shape)
	none, failed := b.row("none", 1, 1), errors.New("there is no next row")
	equal(b, "error", copyRows(b, []*retrystore.Row{none}, failed), failed)
	equal(b, "rows", len(b.runs(all, none.Group)[0].Rows), 0)
	b.roundTrip(func(b *bench, rows ...*retrystore.Row) {
		for _, r := range rows { // none waits for a time
			r.NextAttempt = time.Time{}
		}
		b.must(copyRows(b, rows, io.EOF))
	})
}

// A row that cannot be read is distinguished from a database that does not answer.
func testDamaged(b *bench, w *database) {
	b = b.with(func(c *retrystore.Config) { c.Columns = []string{"tenant"} })
	row, deadLetter := b.row("k", 1, 1), b.row("k", 1, 1)
	deadLetter.Dead = true
	row.Event.Columns, deadLetter.Event.Columns = [][]byte{nil}, [][]byte{nil}
	b.deferRow(row, deadLetter)
	b.Ask(b.c, retrystore.Replay, deadLetter.N, event.Route{})
	w.exec(`UPDATE cdc_relay.retry SET columns = '\xff' WHERE n = ` + fmt.Sprint(row.N))
	w.exec(`UPDATE cdc_relay.dead_letter SET columns = '\xff' WHERE n = ` + fmt.Sprint(deadLetter.N))
	if _, err := b.Read(await.Context(b.T), wants(row.Group), 1, all, all); !retrystore.IsRefused(err) || !errors.Is(err, errColumns) {
		b.Errorf("runs: %v", err)
	}
	if _, err := b.Requests(await.Context(b.T), 1, all); !retrystore.IsRefused(err) || !errors.Is(err, errColumns) {
		b.Errorf("requests: %v", err)
	}
	list, err := b.Requests(await.Context(b.T), 1, 0)
	if b.must(err); len(list) != 1 || list[0].Row == nil || list[0].Row.N != deadLetter.N {
		b.Errorf("without what is sent: %+v", list)
	}
	ended, end := context.WithCancel(await.Context(b.T))
	end()
	if _, err := b.Read(ended, wants(row.Group), 1, all, all); err == nil || retrystore.IsRefused(err) {
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
		former := b.with(func(c *retrystore.Config) { c.Epoch = epoch })
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
		if err := <-done; !errors.Is(err, retrystore.ErrFenced) {
			b.Errorf("%s: got %v", name, err)
		}
	}
	b.with(func(c *retrystore.Config) { c.Epoch = epoch }).unchanged(deferred, deadLetter, fresh, request)
}

// What only reads takes no row lock and no transaction id, so it flushes nothing and waits for no
// synchronous standby: it may run in a session that may not write. It does not wait for a raise of
// the epoch either. Everything else is refused there.
func testReads(b *bench, w *database) {
	b = b.with(func(c *retrystore.Config) { c.Block = true })
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
		if err := call(); !errors.Is(err, retrystore.ErrFenced) {
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
	args := append([]any{pgx.QueryExecModeCacheDescribe, p.c.Slot, p.c.Epoch, p.c.SystemID}, wantArrays(wants(b.row("k", 1, 1).Group))...)
	tx, err := w.pool.Begin(await.Context(b.T))
	b.must(err)
	b.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	// A sequential scan is the cheaper one for a few rows.
	_, err = tx.Exec(await.Context(b.T), `SET LOCAL enable_seqscan = off`)
	b.must(err)
	rows, err := tx.Query(await.Context(b.T), "EXPLAIN "+p.readSQL(), append(args, run, all, all, p.limits.large, run+1)...)
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
		former := b.with(func(c *retrystore.Config) { c.Epoch = epoch })
		tx, err := w.conn.Begin(await.Context(b.T))
		b.must(err)
		_, err = tx.Exec(await.Context(b.T), `LOCK TABLE cdc_relay.retry, cdc_relay.dead_letter, cdc_relay.request`)
		b.must(err)
		done := make(chan error, 1)
		go func() { done <- methods(former, deferred, deadLetter, fresh, request)[name]() }()
		w.untilLocked(b, name, nil)
		b.must(w.pool.QueryRow(await.Context(b.T), `UPDATE cdc_relay.slots SET epoch = epoch + 1 WHERE slot = $1 RETURNING epoch`, b.c.Slot).Scan(&epoch))
		b.must(tx.Commit(await.Context(b.T)))
		if err := <-done; !errors.Is(err, retrystore.ErrFenced) {
			b.Errorf("%s: got %v", name, err)
		}
	}
	b.with(func(c *retrystore.Config) { c.Epoch = epoch }).unchanged(deferred, deadLetter, fresh, request)
}

// A row that the database refuses leaves the others out of the table, and is named when it is
// alone.
func testRefused(b *bench, w *database) {
	rows := b.rows(3, "k", 1, 1)
	for _, table := range []string{"retry", "dead_letter"} {
		w.exec(fmt.Sprintf(`ALTER TABLE cdc_relay.%s ADD CONSTRAINT refuses CHECK (n <> %d)`, table, rows[1].N))
		b.Cleanup(func() { w.exec(`ALTER TABLE cdc_relay.` + table + ` DROP CONSTRAINT refuses`) })
	}
	var refused *retrystore.Refused
	err := b.Defer(await.Context(b.T), rows)
	if !errors.As(err, &refused) || refused.Row != nil || !strings.Contains(refused.Error(), "refuses") {
		b.Fatalf("got %v", err)
	}
	b.wantWhere("", rows...)
	for i, row := range rows {
		row.Dead = i == 2
		err := b.Defer(await.Context(b.T), []*retrystore.Row{row})
		if i != 1 && err != nil || i == 1 && (!errors.As(err, &refused) || refused.Row != row) {
			b.Fatalf("row %d: got %v", i, err)
		}
	}
	b.wantWhere("deferred", rows[0])
	b.wantWhere("open", rows[2])
	w.exec(`ALTER TABLE cdc_relay.dead_letter DROP CONSTRAINT refuses`)
	w.exec(fmt.Sprintf(`ALTER TABLE cdc_relay.dead_letter ADD CONSTRAINT refuses CHECK (n <> %d)`, rows[0].N))
	err = b.Apply(await.Context(b.T), []retrystore.Result{{Row: rows[0], Kind: retrystore.Dead}})
	if !errors.As(err, &refused) || refused.Row != rows[0] {
		b.Fatalf("got %v", err)
	}
	b.wantWhere("deferred", rows[0])
}

// What is not the row's fault is no refusal.
func testNotRefused(b *bench, w *database) {
	row := b.row("k", 1, 1)
	var refused *retrystore.Refused
	fails := func(what string, c context.Context) {
		b.Helper()
		if err := b.Defer(c, []*retrystore.Row{row}); err == nil || errors.As(err, &refused) || errors.Is(err, retrystore.ErrFenced) {
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
	var refused *retrystore.Refused
	if err := b.Apply(await.Context(b.T), []retrystore.Result{{Row: row, Kind: retrystore.Dead}}); !errors.As(err, &refused) {
		b.Fatalf("got %v", err)
	}
	b.wantWhere("deferred", row)
}

// An operator cancels a request in the moment in which it is carried out: either he is told that it
// is done, or it is not done.
func testCancelledMeanwhile(b *bench, w *database) {
	deadLetter := b.deadLetter("k")
	id := b.Ask(b.c, retrystore.Discard, deadLetter.N, event.Route{})
	answers := []retrystore.Answer{{Request: b.request(id)}}
	tx, err := w.conn.Begin(await.Context(b.T))
	b.must(err)
	_, err = tx.Exec(await.Context(b.T), `UPDATE cdc_relay.request SET state = 'cancelled', done_at = now() WHERE id = $1 AND state = 'waiting'`, id)
	b.must(err)
	done := make(chan []bool, 1)
	go func() {
		took, err := b.Answer(await.Context(b.T), answers)
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
	w := newDatabase(t, servers.SharedPostgres(t), "")
	for name, call := range unknown {
		t.Run(name, func(t *testing.T) {
			w.t = t
			b := newBench(t, w)
			pool, proxy := w.through()
			store := New(pool, source.BackendPID, b.c)
			do, check := call(b)
			proxy.Hold(netproxy.Down)
			c, cancel := context.WithTimeout(await.Context(t), 500*time.Millisecond)
			defer cancel()
			var refused *retrystore.Refused
			if err := do(c, store); err == nil || errors.As(err, &refused) || errors.Is(err, retrystore.ErrFenced) {
				t.Fatalf("got %v", err)
			}
			proxy.Release(netproxy.Down)
			for range 2 {
				b.must(do(await.Context(t), store))
			}
			check()
			equal(t, "doubts left", len(store.doubt), 0)
		})
	}
}

// A statement is cut off on its way. It is made again, what it wrote is delivered and deleted, and
// then it arrives: its session must be gone.
func TestStatementLate(t *testing.T) {
	w := newDatabase(t, servers.SharedPostgres(t), "")
	for name, call := range unknown {
		t.Run(name, func(t *testing.T) {
			w.t = t
			b := newBench(t, w)
			pool, proxy := w.through()
			second, _ := w.through()
			store := New(pool, source.BackendPID, b.c)
			do, check := call(b)
			// Once before, so that the session knows the statement and all of it goes in one piece.
			other, _ := call(b)
			b.must(other(await.Context(t), store))
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
			if err := do(c, store); err == nil {
				t.Fatal("no error")
			}
			equal(t, "doubts", len(store.doubt), 1)
			store.pool = second
			b.must(do(await.Context(t), store))
			check()
			if name == "defer" {
				for _, row := range b.runs(all, b.fedGroup())[0].Rows {
					b.must(store.Apply(await.Context(t), []retrystore.Result{{Row: row, Kind: retrystore.Delivered}}))
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
var unknown = map[string]func(b *bench) (do func(context.Context, retrystore.Store) error, check func()){
	"defer": func(b *bench) (func(context.Context, retrystore.Store) error, func()) {
		row, deadLetter := b.row("fed", 1, 1), b.row("dead", 1, 1)
		deadLetter.Dead = true
		return func(c context.Context, s retrystore.Store) error {
				return s.Defer(c, []*retrystore.Row{row, deadLetter})
			},
			func() { b.wantWhere("deferred", row); b.wantWhere("open", deadLetter) }
	},
	"apply": func(b *bench) (func(context.Context, retrystore.Store) error, func()) {
		rows := b.rows(3, fmt.Sprint("apply", b.at), 1, 1)
		b.deferRow(rows...)
		results := []retrystore.Result{{Row: rows[0], Kind: retrystore.Delivered}, {Row: rows[1], Kind: retrystore.Dead}, {Row: rows[2], Kind: retrystore.Backoff, Reason: "invalid", Attempts: 1, After: time.Hour}}
		return func(c context.Context, s retrystore.Store) error { return s.Apply(c, results) },
			func() {
				b.wantWhere("", rows[0])
				b.wantWhere("open", rows[1])
				b.wantRows(rows[2].Group, rows[2])
				equal(b, "attempts", b.runs(all, rows[2].Group)[0].Rows[0].Attempts, 1)
			}
	},
	"answer": func(b *bench) (func(context.Context, retrystore.Store) error, func()) {
		deadLetter := b.deadLetter("k")
		id := b.Ask(b.c, retrystore.Discard, deadLetter.N, event.Route{})
		a := []retrystore.Answer{{Request: b.request(id)}}
		return func(c context.Context, s retrystore.Store) error {
				done, err := s.Answer(c, a)
				if err == nil && !slices.Equal(done, []bool{true}) {
					b.Errorf("done %v", done)
				}
				return err
			}, func() {
				b.wantWhere("discarded", deadLetter)
				equal(b, "audit", len(b.audit(deadLetter.N)), 1)
			}
	},
	"expire": func(b *bench) (func(context.Context, retrystore.Store) error, func()) {
		deadLetter := b.deadLetter("k")
		b.answer(b.Ask(b.c, retrystore.Discard, deadLetter.N, event.Route{}), true, sink.Outcome{})
		return func(c context.Context, s retrystore.Store) error {
				_, err := s.Expire(c, time.Nanosecond, 10)
				return err
			},
			func() { b.wantWhere("purged", deadLetter) }
	},
}
