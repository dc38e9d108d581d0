package retention

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func TestMain(m *testing.M) { servers.Main(m) }

// rig is a database with an outbox table, and the record of a slot that has settled it all when
// settle is called. No relay runs.
type rig struct {
	t    *testing.T
	ctx  context.Context
	pool *pgxpool.Pool
	url  string
	slot string
	*Retention
	logs *observer.ObservedLogs
}

// outboxTable is the default of a rig's table.
const outboxTable = `CREATE TABLE outbox (id text, at timestamptz)`

// newRig makes one; keep 0 is without an age.
func newRig(t *testing.T, keep time.Duration, create string) *rig {
	t.Helper()
	t.Parallel()
	return rigOn(t, servers.SharedPostgres(t), keep, create)
}

func rigOn(t *testing.T, server *pgserver.Postgres, keep time.Duration, create string) *rig {
	t.Helper()
	return rigIn(t, server.Database(t), keep, create)
}

// rigIn is a rig in a database.
func rigIn(t *testing.T, url string, keep time.Duration, create string) *rig {
	t.Helper()
	r := &rig{t: t, ctx: await.Context(t), url: url, slot: fmt.Sprintf("ret_%d", time.Now().UnixNano())}
	cfg := source.Config{
		URL: r.url, Slot: r.slot, Publication: r.slot, WALSenderTimeout: 30 * time.Second, Log: zap.NewNop(),
		Tables: []decode.Table{{Schema: "public", Name: "outbox"}},
	}
	r.must(setup.Init(r.ctx, cfg, setup.InitOptions{NoSlot: true}))
	pool, err := source.Connect(r.ctx, cfg)
	r.must(err)
	t.Cleanup(pool.Close)
	r.pool = pool
	r.exec(`SET search_path = public; ` + create)
	r.addSlot(r.slot)
	core, logs := observer.New(zap.WarnLevel)
	r.logs = logs
	r.Retention = New(Config{Pool: pool, Slot: r.slot, Epoch: 1, Keep: keep, Log: zap.New(core), Tables: []Table{
		{Schema: "public", Name: "outbox", ID: []string{"id"}, Time: []string{"at"}},
	}})
	return r
}

// addSlot makes the record of a slot that sends the table and has settled nothing.
func (r *rig) addSlot(slot string) {
	r.t.Helper()
	r.exec(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation, epoch, sends)
		SELECT $1, system_identifier, 1, 'p', 'ready', 1, 1, '{"tables": {"\"public\".\"outbox\"": {"oid": 1, "since": 1}}}' FROM pg_control_system()`, slot)
	r.exec(`INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good) VALUES ($1, '0/1', '0/1', '0/1')`, slot)
}

// settle has a slot settle all that has ended. Other tests may have transactions open: it waits
// until what was committed before is below them.
func (r *rig) settle(slot string) {
	r.t.Helper()
	var next string
	r.must(r.pool.QueryRow(r.ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text`).Scan(&next))
	r.exec(`UPDATE cdc_relay.progress SET settled_xid = $2::text::xid8 WHERE slot = $1`, slot, next)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	conn, err := r.pool.Acquire(r.ctx)
	r.must(err)
	defer conn.Release()
	if len(args) == 0 {
		_, err = conn.Conn().PgConn().Exec(r.ctx, sql).ReadAll()
	} else {
		_, err = conn.Exec(r.ctx, sql, args...)
	}
	if err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// put inserts rows in a transaction each.
func (r *rig) put(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.exec(`INSERT INTO public.outbox (id, at) VALUES ($1, now())`, id)
	}
}

// runPass makes a pass that looks at everything again, as one of a new leader does.
func (r *rig) runPass() error {
	r.leaves = map[uint32]*leaf{}
	return r.pass(r.ctx)
}

// left are the ids of the rows that a pass leaves.
func (r *rig) left() []string {
	r.t.Helper()
	r.must(r.runPass())
	return r.ids()
}

func (r *rig) ids() (ids []string) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, `SELECT array(SELECT id::text FROM public.outbox ORDER BY id)`).Scan(&ids))
	return ids
}

func (r *rig) want(got []string, want ...string) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Fatalf("rows %q are left, want %q", got, want)
	}
}

// partitioned is a table with two partitions by id.
const partitioned = `CREATE TABLE outbox (id text, at timestamptz) PARTITION BY RANGE (id);
	CREATE TABLE "Old" PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('b'); CREATE TABLE new PARTITION OF outbox FOR VALUES FROM ('b') TO (MAXVALUE)`

// hold puts a row of an id into the retry table or the dead letters.
func (r *rig) hold(table, slot, id, state string) {
	r.t.Helper()
	columns, values := "", ""
	if state != "" {
		columns, values = ", state", ", '"+state+"'"
	}
	r.exec(`INSERT INTO cdc_relay.`+table+` (slot, system_id, n, incarnation, commit_lsn, idx, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
			deferred_at, class, reason, error, destination, commit_time, event_time, payload_kind, id`+columns+`)
		SELECT $1, system_identifier, num, 1, '0/1', num, 0, 0, 0, 0, true, true, 1, 1, now(), '', '', '', '', now(), now(), 0, convert_to($2, 'UTF8')`+values+`
		FROM pg_control_system(), nextval('cdc_relay.row_number') num`, slot, id)
}

// next is the next transaction to begin.
func (r *rig) next() (xid string) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text`).Scan(&xid))
	return xid
}

// now is the database's time, and below which transaction everything has ended. Of what others do
// on the server nothing is waited for: what r has done has ended.
func (r *rig) now() (at time.Time, ended int64) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, `SELECT now(), pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&at, &ended))
	return at, ended
}

func (r *rig) oid(table string) (oid uint32) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, `SELECT ('public.' || $1)::regclass::oid`, table).Scan(&oid))
	return oid
}
