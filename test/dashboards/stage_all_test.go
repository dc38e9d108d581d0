//go:build testall

package dashboards

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// This file is the play that the panels show: a relay and its standby under load, a broker that
// restarts, events that can never be sent, some that are given up, a large transaction, and
// destinations that refuse and are fixed.

const (
	orders  = "outbox.events"
	healthy = "healthy.events"
	mirror  = "dead.events"
	job     = "shop"
)

type stage struct {
	*stand.Stand
	broker  *rabbitserver.Rabbit
	relay   *runner.Relay
	metrics *servers.Prometheus
	relays  []string // their addresses, host:port, that of the leader first
	asked   string   // those whose panels are compared; a regular expression
	start   time.Time
}

func setStage(t *testing.T) *stage {
	t.Helper()
	pg, err := pgserver.Start(t.Context(), pgserver.Options{Settings: map[string]string{
		"max_slot_wal_keep_size":    "256MB", // else there is no room left to show
		"logical_decoding_work_mem": "64kB",  // a large transaction is spilled
	}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	broker, err := rabbitserver.Start(t.Context(), rabbitserver.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, broker.Close()) })

	s := &stage{Stand: stand.On(t, pg, stand.OnRabbitMQ(broker)), broker: broker}
	s.Slot = "shop_outbox"
	// On a busy machine the leader is not to give way to the standby: what it has counted would be
	// a part of all.
	s.Timeout = "60s"
	s.Keys = 60 // many: the first events of keys that are refused are of each kind
	s.Route()
	s.MakeExchange(healthy)
	// nobody reads it
	s.SQL(`SELECT pg_create_logical_replication_slot('debezium_orders', 'pgoutput')`)
	s.Retry = "backoff: 200ms, max_backoff: 1s, max_attempts: 3"
	s.DeadLetters = fmt.Sprintf("mirror: {exchange: %s, routing_key: dead}", mirror)
	s.Kinds = []load.Kind{{Share: 0.2, Destination: healthy}, s.Poison(0.02, 0)}
	s.relay = s.Start()
	standby := s.Launch()
	s.Ready(standby)
	s.relays = []string{address(s.relay), address(standby)}
	s.asked = s.relays[0] // a standby tells of the slots, too, at other times
	s.metrics, err = servers.StartPrometheus(t.Context(), servers.PrometheusOptions{Interval: interval, Jobs: s.jobs()})
	must(t, err)
	t.Cleanup(func() { must(t, s.metrics.Close()) })
	return s
}

func address(r *runner.Relay) string { return strings.TrimPrefix(r.Admin(), "http://") }

// jobs is what Prometheus scrapes.
func (s *stage) jobs() map[string][]string {
	var bases []string
	for _, address := range s.relays {
		bases = append(bases, "http://"+address)
	}
	return map[string][]string{job: bases}
}

// play returns when nothing goes on any more. Before is called when there was no event yet;
// meanwhile when a destination refuses, all that goes there is deferred, and no load runs.
func (s *stage) play(before, meanwhile func()) {
	s.T.Helper()
	s.start = time.Now()
	s.scraped() // all counters at 0
	before()
	stop := s.Load(150)
	s.More(300)

	// What is counted by the broker itself is counted from here on.
	s.Must(s.broker.Stop(s.Context()))
	s.Unready(s.relay, "")
	s.scraped()
	s.Must(s.broker.Start(s.Context()))
	s.Ready(s.relay)
	s.Fresh(100)

	const ailing = 5
	for i := range ailing {
		s.ail(fmt.Sprint("ailing ", i))
	}
	s.Until("events to be given up", func() bool { return s.deadLetters(`class = 'transient'`) == ailing })
	s.bulk(1500)

	s.Unbind(orders, "#")
	s.newKeys() // else it would be chance of which kind the first event of a key is
	s.AwaitRows(checker.Deferred, 300)
	stop()
	s.Until("copies of dead letters to be refused", func() bool { return s.Metric(s.relay, "outbox_dlq_publish_failed_total") > 0 })
	meanwhile()
	// The exchange comes with a queue behind it: a copy that came between the two would be
	// returned, which is no rejection of an event.
	s.MakeQueue("dead", "amq.fanout", "", nil)
	s.AMQP(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(mirror, "topic", true, false, false, false, amqp.Table{"alternate-exchange": "amq.fanout"})
	})
	s.Bind(orders, "#")
	s.Until("nothing to be deferred", func() bool { return s.RowsIn(checker.Deferred) == 0 })
	stop = s.Load(150)
	s.More(200)
	stop()
}

// end adds a relay that has led, has dead letters, and has stopped for good and says so: its
// publication is not what it was. What it had counted is not told beside what the leader tells.
func (s *stage) end(all []*board) {
	s.T.Helper()
	led := s.Slot
	s.Slot += "_gone"
	s.Init("--no-backfill")
	r := runner.Start(s.T, runner.Build(s.T), s.Config(), "--hold-on-fatal")
	s.Leads(r)
	const dead = 20
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, routing_key)
		SELECT gen_random_uuid(), 'order', 'gone', 'placed', $1 FROM generate_series(1, $2)`, s.Poison(0, 0).RoutingKey, dead)
	s.Until("its dead letters to be counted", func() bool { return s.Metric(r, "outbox_dead_letters") == dead })
	s.SQL(`ALTER PUBLICATION ` + s.Slot + ` DROP TABLE outbox`)
	s.Until("the relay to say that it has stopped", func() bool {
		_, body, err := r.Get(s.Context(), "/metrics")
		return err == nil && strings.Contains(body, "outbox_stopped{")
	})
	s.relays = append(s.relays, address(r))
	s.Must(s.metrics.Scrape(s.Context(), s.jobs()))
	s.scraped()
	s.scraped() // the leader, after the new one: their times differ
	s.asked = ".+"
	s.agree(all, []fact{
		{"Dead letters", "A", "", func() float64 { return s.deadLetters(`state = 'open' AND slot = '` + led + `'`) }},
		{"Behind", "A", "", func() float64 { return 0 }},
	})
}

// ail inserts an event that the broker refuses for a reason that may pass: the header CC has a
// meaning of its own there.
func (s *stage) ail(key string) {
	s.T.Helper()
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
		VALUES (gen_random_uuid(), 'order', $1, 'placed', jsonb_build_object('key', $1::text, 'seq', 1), '{"CC": "no list"}')`, key)
}

// bulk commits one transaction that the server has to spill. Its keys are many: the rows of one go
// one by one, from the retry table, too.
func (s *stage) bulk(rows int) {
	s.T.Helper()
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), 'order', key, 'placed', jsonb_build_object('key', key, 'seq', n, 'fill', repeat('x', 500))
		FROM (SELECT 'bulk ' || n % 100 AS key, n FROM generate_series(1, $1) n) r`, rows)
}

// newKeys commits an event of each kind of the usual rows, with its routing key and a key of its
// own: nothing of that is deferred, so it is sent.
func (s *stage) newKeys() {
	s.T.Helper()
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, routing_key, payload)
		SELECT gen_random_uuid(), 'order', 'new ' || kind, kind AS type, 'order.' || kind, jsonb_build_object('key', 'new ' || kind, 'seq', 1)
		FROM unnest(ARRAY['placed', 'paid', 'shipped']) kind`)
}

// deadLetters counts the dead letters.
func (s *stage) deadLetters(where string) (n float64) {
	s.T.Helper()
	return s.number(`SELECT count(*) FROM cdc_relay.dead_letter WHERE ` + where)
}

// number asks the database for one.
func (s *stage) number(sql string, args ...any) (n float64) {
	s.T.Helper()
	s.Query([]any{&n}, `SELECT (`+sql+`)::float8`, args...)
	return n
}

// queued is how many messages a queue has.
func (s *stage) queued(name string) (n float64) {
	s.T.Helper()
	s.AMQP(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		n = float64(q.Messages)
		return err
	})
	return n
}

// scraped returns when Prometheus knows what the relays know now.
func (s *stage) scraped() {
	s.T.Helper()
	s.Must(s.metrics.WaitScraped(s.Context()))
}

// brokerCounts is what RabbitMQ has counted since it was started last.
func (s *stage) brokerCounts(counter string) (n float64) {
	s.T.Helper()
	out, err := s.broker.Ctl(s.Context(), "eval", fmt.Sprintf("maps:get(%s, maps:get([{protocol, amqp091}], rabbit_global_counters:overview())).", counter))
	s.Must(err)
	n, err = strconv.ParseFloat(strings.TrimSpace(out), 64)
	s.Must(err)
	return n
}
