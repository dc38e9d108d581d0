package retention

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

func TestMain(m *testing.M) { servers.Main(m) }

// rig is a database with an outbox table, and the record of a slot that has delivered what deliver
// is called with. No relay runs.
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
const outboxTable = `CREATE TABLE outbox (id text, at timestamptz, tx xid8 DEFAULT pg_current_xact_id()); CREATE INDEX outbox_tx ON outbox (tx)`

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
	r.Retention = New(Config{
		Pool: pool, Slot: r.slot, Epoch: 1, Delete: true, Keep: keep, Log: zap.New(core),
		Settled: func() pglogrepl.LSN { return math.MaxUint64 },
		Tables:  []sent.Table{{Schema: "public", Name: "outbox", ID: []string{"id"}, Transaction: []string{"tx"}}},
	})
	return r
}

// addSlot makes the record of a slot that sends the table, all of it from its first row on, and has
// delivered nothing.
func (r *rig) addSlot(slot string) {
	r.t.Helper()
	r.exec(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation, epoch, sends)
		SELECT $1, system_identifier, 1, 'p', 'ready', 1, 1, '{"tables": {"\"public\".\"outbox\"": {"oid": 1, "first": "3:3:"}}}' FROM pg_control_system()`, slot)
}

// deliver records that a slot has delivered the rows with these ids that there are now, as rows of
// the table outbox, a minute ago.
func (r *rig) deliver(slot string, ids ...string) { r.t.Helper(); r.deliverAs(slot, "outbox", ids...) }

// deliverAs is deliver with the name that the relation has in the stream.
func (r *rig) deliverAs(slot, relation string, ids ...string) {
	r.t.Helper()
	r.exec(`WITH rows AS (SELECT $2::regclass::oid AS relation, tx::text::bigint AS tx, convert_to(id::text, 'UTF8') AS id FROM public.outbox t WHERE id::text = ANY ($3::text[])),
		done AS (`+sent.InsertRowsSQL("rows", "$1::text")+` RETURNING n) SELECT count(*) FROM done`, slot, `public.`+relation, ids)
	r.exec(`UPDATE cdc_relay.sent SET at = at - interval '1 minute' WHERE at > now() - interval '1 minute'`)
}

// parts is how many parts of the sent set there are.
func (r *rig) parts() (n int) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, `SELECT count(*) FROM cdc_relay.sent`).Scan(&n))
	return n
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

// left are the ids of the rows that a pass leaves. A part waits for all transactions between its
// first and its last to end. Those of other tests on the server are none of this one's.
func (r *rig) left() []string {
	r.t.Helper()
	await.Until(r.t, "transactions of other databases to end", func() (ended bool) {
		r.must(r.pool.QueryRow(r.ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity a, cdc_relay.sent s
			WHERE (a.datname IS DISTINCT FROM current_database() OR a.backend_type <> 'client backend')
				AND a.backend_xid::text::bigint BETWEEN s.first_tx & 4294967295 AND s.last_tx & 4294967295)`).Scan(&ended))
		return ended
	})
	r.must(r.lookAtEnd(r.ctx))
	r.must(r.runPass(r.ctx))
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
const partitioned = `CREATE TABLE outbox (id text, at timestamptz, tx xid8 DEFAULT pg_current_xact_id()) PARTITION BY RANGE (id); CREATE INDEX ON outbox (tx);
	CREATE TABLE "Old" PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('b'); CREATE TABLE new PARTITION OF outbox FOR VALUES FROM ('b') TO (MAXVALUE)`

func (r *rig) oid(table string) (oid uint32) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, `SELECT ('public.' || $1)::regclass::oid`, table).Scan(&oid))
	return oid
}

// hold puts a row of an id into the retry table or the dead letters.
func (r *rig) hold(table, id, state string) {
	r.t.Helper()
	columns, values := "", ""
	if state != "" {
		columns, values = ", state", ", '"+state+"'"
	}
	r.exec(`INSERT INTO cdc_relay.`+table+` (slot, system_id, n, incarnation, commit_lsn, idx, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
			deferred_at, class, reason, error, destination, commit_time, event_time, payload_kind, id`+columns+`)
		SELECT $1, system_identifier, num, 1, '0/1', num, 0, 0, 0, 0, true, true, 1, 1, now(), '', '', '', '', now(), now(), 0, convert_to($2, 'UTF8')`+values+`
		FROM pg_control_system(), nextval('cdc_relay.row_number') num`, r.slot, id)
}
