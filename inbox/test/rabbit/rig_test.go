package rabbit_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

func TestMain(m *testing.M) { servers.Main(m, servers.ExampleDatabase, servers.ExampleVHost) }

// rig is a virtual host and a database, in which a handler writes what it has done.
type rig struct {
	t       *testing.T
	ctx     context.Context
	broker  *rabbitserver.Rabbit
	url     string
	pool    *pgxpool.Pool
	metrics *prometheus.Registry
	conn    *amqp.Connection
	ch      *amqp.Channel

	inbox  inbox.Config
	rabbit rabbit.Config
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, servers.SharedRabbitMQ(t))
}

func newRigOn(t *testing.T, broker *rabbitserver.Rabbit) *rig {
	t.Helper()
	r := &rig{t: t, ctx: t.Context(), broker: broker, metrics: prometheus.NewRegistry()}
	r.url = r.broker.VHost(t)
	db := servers.SharedPostgres(t).Database(t)
	pool, err := pgxpool.New(context.Background(), db)
	r.must(err)
	t.Cleanup(pool.Close)
	r.pool = pool
	_, err = pool.Exec(r.ctx, inbox.Schema("")+"CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, id text, key text, payload text, attempt int)")
	r.must(err)
	conn, err := amqp.Dial(r.url)
	r.must(err)
	t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(10 * time.Second)) })
	r.conn = conn
	r.ch, err = conn.Channel()
	r.must(err)
	r.inbox = inbox.Config{
		Service: "mailer", Pool: pool, Handler: effect, Levels: []time.Duration{time.Second, time.Second},
		Registerer: r.metrics, Log: slog.New(slog.DiscardHandler),
	}
	r.rabbit = rabbit.Config{URL: r.url, Bindings: []rabbit.Binding{{Exchange: "outbox.events", Key: "order.*"}}}
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// effect writes that a message was processed.
func effect(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (id, key, payload, attempt) VALUES ($1, $2, $3, $4)", m.ID, m.Key, string(m.Payload), m.Attempt)
	return err
}

// consumer makes one with the configuration of the rig.
func (r *rig) consumer() *rabbit.Consumer {
	r.t.Helper()
	in, err := inbox.New(r.inbox)
	r.must(err)
	c, err := rabbit.New(in, r.rabbit)
	r.must(err)
	return c
}

// run starts a consumer, and returns what stops it.
func (r *rig) run(c *rabbit.Consumer) (stop func()) {
	r.t.Helper()
	cancel, ended := r.start(c)
	return func() { cancel(); ended() }
}

// start starts a consumer. ended waits for its end after cancel was called.
func (r *rig) start(c *rabbit.Consumer) (cancel context.CancelFunc, ended func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	ended = sync.OnceFunc(func() {
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	r.t.Cleanup(func() { cancel(); ended() })
	return cancel, ended
}

// event is a message as the relay publishes it.
func event(id, key string) amqp.Publishing {
	return amqp.Publishing{
		MessageId: id, Type: "created", ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(fmt.Sprintf(`{"id": %q}`, id)),
		Timestamp: time.Unix(1700000000, 0).UTC(), Headers: amqp.Table{"aggregate_type": "order", "aggregate_id": key, "timestamp_in_ms": int64(1700000000123)},
	}
}

func (r *rig) publish(msgs ...amqp.Publishing) {
	r.t.Helper()
	for _, m := range msgs {
		r.must(r.ch.PublishWithContext(r.ctx, "outbox.events", "order.created", true, false, m))
	}
}

// effects are the ids in the order of their effects.
func (r *rig) effects() string {
	r.t.Helper()
	var ids *string
	r.must(r.pool.QueryRow(r.ctx, "SELECT string_agg(id, ' ' ORDER BY n) FROM effect").Scan(&ids))
	if ids == nil {
		return ""
	}
	return *ids
}

func (r *rig) wantEffects(want ...string) {
	r.t.Helper()
	await.Until(r.t, "effects of "+strings.Join(want, " "), func() bool { return len(strings.Fields(r.effects())) >= len(want) })
	if got := r.effects(); got != strings.Join(want, " ") {
		r.t.Errorf("effects: %s, want %s", got, strings.Join(want, " "))
	}
}

// depth is how many messages a queue has ready.
func (r *rig) depth(queue string) int {
	r.t.Helper()
	q, err := r.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	r.must(err)
	return q.Messages
}

// metric is the value of one without further labels.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	r.must(err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	r.t.Fatalf("there is no metric %s", name)
	return 0
}

// hurry makes waits of a minute or less shorter, which no user may set. These tests are in another
// module than the consumer: its users do not need what starts servers.
func hurry(c *rabbit.Consumer, d time.Duration) {
	for _, wait := range []string{"watchEvery", "confirmWithin", "unwind"} {
		f := reflect.ValueOf(c).Elem().FieldByName(wait)
		*(*time.Duration)(f.Addr().UnsafePointer()) = d
	}
}
