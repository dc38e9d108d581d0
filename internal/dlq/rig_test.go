package dlq

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	replicationsetup "github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func TestMain(m *testing.M) { servers.Main(m) }

// rig is a database with the relay's schema and the record of its slot, and an Admin; no relay
// runs.
type rig struct {
	t     *testing.T
	ctx   context.Context
	pool  *pgxpool.Pool
	slot  string
	admin *Admin
	cfg   source.Config
	at    time.Time // of the next row
	next  int64     // its number
}

var by = Requester{Who: "ann", Why: "a test"}

func setup(t *testing.T) *rig {
	t.Helper()
	return setupOn(t, servers.SharedPostgres)
}

func setupOn(t *testing.T, server func(testing.TB) *pgserver.Postgres) *rig {
	t.Helper()
	t.Parallel()
	ctx := await.Context(t)
	url := server(t).Database(t)
	r := &rig{t: t, ctx: ctx, slot: fmt.Sprintf("dlq_%d", time.Now().UnixNano()), at: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), next: 1}
	names := func(n string) decode.Names { return decode.Names{Any: []string{n}} }
	cfg := source.Config{
		URL: url, Slot: r.slot, Publication: r.slot, Create: true, WALSenderTimeout: 30 * time.Second, Log: zap.NewNop(),
		Tables: []decode.Table{{Schema: "public", Name: "outbox", Mapping: decode.Mapping{
			ID: names("id"), Aggregate: names("aggregatetype"), Key: names("aggregateid"), Type: names("type"), Payload: names("payload"), Transaction: names("tx"),
		}}},
	}
	r.must(replicationsetup.Init(ctx, cfg, replicationsetup.InitOptions{OutboxTable: true, NoSlot: true}))
	r.cfg = cfg
	pool, err := source.Connect(ctx, cfg)
	r.must(err)
	t.Cleanup(pool.Close)
	r.pool, r.admin = pool, New(pool, r.slot)
	r.exec(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation, epoch)
		SELECT $1, system_identifier, 1, 'p', 'ready', 1, 1 FROM pg_control_system()`, r.slot)
	return r
}

// withSlot is setup with the slot itself, on a server of this process: making it waits for the
// transactions of all tests there.
func withSlot(t *testing.T) *rig {
	t.Helper()
	r := setupOn(t, servers.OwnPostgres)
	r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot)
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.ctx, sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// value is the one value that a query gives.
func value[T any](r *rig, sql string, args ...any) (v T) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.ctx, sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// sample is a row to be put into a table; what is left zero is taken from the defaults in put.
type sample struct {
	of                         *Table
	id, key, aggregate, kind   string
	payload, raw               []byte
	name, routingKey           string
	class, reason, words       string
	state                      string // of a dead letter
	at                         time.Time
	backoff                    bool
	dest                       int64 // of a deferred row; 0: 1
	noKey, noAggregate, sealed bool  // sealed: redacted
}

// put writes a row that is one second newer than the one before, and returns its number.
func (r *rig) put(s sample) int64 {
	r.t.Helper()
	n := r.next
	r.next++
	or := func(v *string, fallback string) {
		if *v == "" {
			*v = fallback
		}
	}
	or(&s.id, fmt.Sprintf("e-%d", n))
	or(&s.key, "42")
	or(&s.aggregate, "order")
	or(&s.kind, "created")
	or(&s.name, "orders")
	or(&s.class, "permanent")
	or(&s.reason, "too_large")
	or(&s.words, "body of # bytes")
	or(&s.state, Open)
	if s.at.IsZero() {
		r.at = r.at.Add(time.Second)
		s.at = r.at
	}
	if s.payload == nil {
		s.payload = fmt.Appendf(nil, `{"n": %d}`, n)
	}
	bytesOf := func(text string, no bool) []byte {
		if no {
			return nil
		}
		return []byte(text)
	}
	var routingKey []byte
	if s.routingKey != "" {
		routingKey = []byte(s.routingKey)
	}
	columns := `slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes, deferred_at, first_failed_at,
		failed_at, class, reason, error, destination, route_name, routing_key, commit_time, event_time, id, aggregate, key, type, payload_kind,
		payload, traceparent, headers, columns, raw`
	values := `$1, (SELECT system_id FROM cdc_relay.slots WHERE slot = $1::text), 1, ('0/0'::pg_lsn + 1000 * $2::bigint), 0, $2, 1, 1, 1, 1, 1 = 1, true, 1, 10, $3, $3, $3, $4, $5, $6, '', $7, $8, $3, $3,
		$9, $10, $11, $12, 0, $13, '00-trace', '{"h": 1}', '\x0161036263016400', $14`
	args := []any{
		r.slot, n, s.at, s.class, s.reason, s.words, []byte(s.name), routingKey, []byte(s.id), bytesOf(s.aggregate, s.noAggregate),
		bytesOf(s.key, s.noKey), []byte(s.kind), s.payload, s.raw,
	}
	if s.of == Deferred {
		values = strings.Replace(values, "0, $2, 1, 1, 1,", fmt.Sprintf("0, $2, 1, 1, %d,", max(s.dest, 1)), 1)
		r.exec(`INSERT INTO cdc_relay.retry (`+columns+`, next_attempt) VALUES (`+values+`, CASE WHEN $15::bool THEN now() + interval '1 hour' END)`, append(args, s.backoff)...)
		return n
	}
	closed := s.state != Open
	r.exec(`INSERT INTO cdc_relay.dead_letter (`+columns+`, died_at, closed_at, state, redacted_at)
			VALUES (`+values+`, $3, CASE WHEN $15 THEN $3::timestamptz END, $16, CASE WHEN $17 THEN $3::timestamptz END)`,
		append(args, closed, s.state, s.sealed)...)
	return n
}

// list is the numbers of all pages of a list, of at most limit rows each.
func (r *rig) list(of *Table, f Filter, limit int) []int64 {
	r.t.Helper()
	var ns []int64
	for cursor := ""; ; {
		page, err := r.admin.List(r.ctx, of, f, cursor, limit)
		r.must(err)
		if len(page.Rows) > limit {
			r.t.Fatalf("a page has %d rows, want %d at most", len(page.Rows), limit)
		}
		for _, row := range page.Rows {
			ns = append(ns, row.N)
		}
		if cursor = page.Next; cursor == "" {
			return ns
		}
	}
}

func (r *rig) wantList(of *Table, f Filter, want ...int64) {
	r.t.Helper()
	for _, limit := range []int{1, 2, MaxLimit} {
		if got := r.list(of, f, limit); fmt.Sprint(got) != fmt.Sprint(want) {
			r.t.Errorf("%+v in pages of %d gives %v, want %v", f, limit, got, want)
		}
	}
	if f.State == Purged {
		return // nothing can be asked of those
	}
	kind := map[*Table]Kind{DeadLetters: Redact, Deferred: ToDeadLetter}[of]
	n, err := r.admin.Match(r.ctx, Bulk{Kind: kind, Filter: f})
	r.must(err)
	if int(n) != len(want) {
		r.t.Errorf("%+v is matched by %d, want %d", f, n, len(want))
	}
}

// leader is one of the slot's present epoch.
func (r *rig) leader() *Leader {
	return NewLeader(LeaderConfig{Term: Term{DB: r.pool, Slot: r.slot, SystemID: r.system(), Epoch: r.epoch()}, Keep: time.Hour, Log: zap.NewNop()})
}

// expand makes all requests of all jobs.
func (r *rig) expand() {
	r.t.Helper()
	l := r.leader()
	for {
		busy, err := l.once(r.ctx, time.Now())
		r.must(err)
		if !busy {
			return
		}
	}
}

func (r *rig) system() string {
	return value[string](r, `SELECT system_id FROM cdc_relay.slots WHERE slot = $1::text`, r.slot)
}

func (r *rig) epoch() int64 {
	return value[int64](r, `SELECT epoch FROM cdc_relay.slots WHERE slot = $1::text`, r.slot)
}

// contents is a fingerprint of all that operators can change.
func (r *rig) contents() string {
	r.t.Helper()
	var b strings.Builder
	for _, table := range []string{"retry", "dead_letter", "request", "bulk", "audit"} {
		b.WriteString(value[string](r, `SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM cdc_relay.`+table+` t`) + "\n")
	}
	return b.String()
}

var _ Querier = (*pgx.Conn)(nil) // a command may have a connection alone
