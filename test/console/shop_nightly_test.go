//go:build nightly

package console

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// The tokens of the relay.
const (
	mayChange = "operators-token-of-this-test"
	mayRead   = "readers-token-of-this-test"
)

// shop is what the console looks at: a relay between an outbox table and a broker. Events of the
// aggregate order arrive; for those of lost there is no queue, so that their destinations are
// paused; a payload over most bytes is refused for good.
type shop struct {
	t      *testing.T
	db     string
	rabbit *rabbitserver.Rabbit
	most   int // bytes of a message that the broker takes
	config string
	relay  *runner.Relay
}

// largest is what most tests take.
const largest = 64 << 10

// table has ids and payloads that may be anything.
const table = `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload bytea, headers jsonb,
	tx xid8 DEFAULT pg_current_xact_id()); CREATE INDEX ON outbox (tx); CREATE INDEX ON outbox (aggregateid);
	CREATE TABLE returns (LIKE outbox INCLUDING ALL)`

func newShop(t *testing.T, most int) *shop { return newShopOn(t, servers.SharedPostgres(t), most) }

// newShopOn is newShop on a server that the test may stop.
func newShopOn(t *testing.T, pg *pgserver.Postgres, most int) *shop {
	t.Helper()
	ctx := await.Context(t)
	rabbit, err := rabbitserver.Start(ctx, rabbitserver.Options{})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, rabbit.Close()) })
	await.Must(t, rabbit.SetMaxMessageSize(ctx, most))
	s := &shop{t: t, db: pg.Database(t), rabbit: rabbit, most: most}
	s.exec(table)
	name := "console_" + strings.ToLower(t.Name())
	s.config = fmt.Sprintf(`source: {url: %q, slot: %s, publication: %[2]s, tables: [outbox, returns]}
sink:
  rabbitmq:
    url: %s
    exchange: outbox.events
    declare: true
    bindings: [{queue: orders, key: "order.#"}]
admin:
  advertise: https://relay-0.internal:8464
  tokens: [{name: ann, role: operate, value: %s}, {name: bob, role: read, value: %s}]
`, s.db, name, rabbit.URL(), mayChange, mayRead)
	s.relay = s.start(s.config)
	return s
}

// start runs a relay until it is ready.
func (s *shop) start(config string, env ...string) *runner.Relay {
	s.t.Helper()
	relay := runner.StartRelayIn(s.t, env, runner.Build(s.t), config)
	await.Must(s.t, relay.WaitReady(await.Context(s.t)))
	return relay
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	await.Must(s.t, pgserver.OnConn(await.Context(s.t), s.db, func(conn *pgx.Conn) error {
		_, err := conn.Exec(context.Background(), sql, args...)
		return err
	}))
}

// order commits orders: they arrive.
func (s *shop) order(n int) {
	s.t.Helper()
	s.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid()::text, 'order', 'customer-' || i % 20, 'placed', convert_to(jsonb_build_object('total', i)::text, 'UTF8') FROM generate_series(1, $1) i`, n)
}

// insert commits one event.
func (s *shop) insert(id, aggregate, key, kind string, payload []byte) {
	s.t.Helper()
	s.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers) VALUES ($1, $2, $3, $4, $5, '{"tenant": "eu", "retries": 2}')`, id, aggregate, key, kind, payload)
}

// deadLetters commits n events that are too large for the broker, and waits until each is given up.
func (s *shop) deadLetters(n int) {
	s.t.Helper()
	before := s.count("SELECT count(*) FROM cdc_relay.dead_letter")
	for i := range n {
		payload := fmt.Sprintf(`{"order": {"id": "order-%d", "total": 12345678901234567890, "lines": [{"sku": "lamp", "n": 2}, {"sku": "cord", "n": 1}]}, "note": %q}`, i, strings.Repeat("a note that is long, ", s.most/20+1))
		s.insert(fmt.Sprintf("large-%d-%d", before, i), "order", fmt.Sprintf("customer-%d", i%7), "invoiced", []byte(payload))
	}
	s.becomes(before+n, "SELECT count(*) FROM cdc_relay.dead_letter")
}

func (s *shop) count(sql string) (n int) {
	s.t.Helper()
	await.Must(s.t, pgserver.OnConn(await.Context(s.t), s.db, func(conn *pgx.Conn) error {
		return conn.QueryRow(context.Background(), sql).Scan(&n)
	}))
	return n
}

func (s *shop) becomes(want int, sql string) {
	s.t.Helper()
	await.Until(s.t, sql, func() bool { return s.count(sql) == want }, func() any { return s.relay.Log() })
}
