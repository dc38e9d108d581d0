//go:build nightly

package debezium

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

const table = `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb)`

const row = `INSERT INTO outbox VALUES ('0191e0c0-0000-7000-8000-000000000001', 'order', '10711fa5', 'OrderPlaced', '{"a": 1}')`

// The launchers start what they say, and what they start sends a row to its destination and stops
// when asked.
func TestLaunch(t *testing.T) {
	run := map[string]func(*testing.T, string, map[string]string) (stop func(context.Context) error, arrived func() string){
		"connect": func(t *testing.T, db string, source map[string]string) (func(context.Context) error, func() string) {
			k := servers.SharedKafka(t)
			topic := k.Topic(t, 3)
			source["transforms.outbox.route.topic.replacement"] = topic
			c := debeziumserver.StartConnect(t, debeziumserver.ConnectOptions{DB: db, Brokers: k.Brokers(), Source: source, Worker: map[string]string{"value.converter": "org.apache.kafka.connect.storage.StringConverter"}})
			return c.Stop, func() string { return firstRecord(t, k, topic) }
		},
		"server-kafka": func(t *testing.T, db string, source map[string]string) (func(context.Context) error, func() string) {
			k := servers.SharedKafka(t)
			topic := k.Topic(t, 3)
			source["transforms.outbox.route.topic.replacement"] = topic
			d := debeziumserver.StartDebezium(t, debeziumserver.DebeziumOptions{DB: db, Source: source, Sink: debeziumserver.DebeziumKafka(k.Brokers()...)})
			return d.Stop, func() string { return firstRecord(t, k, topic) }
		},
		"server-rabbitmq": func(t *testing.T, db string, source map[string]string) (func(context.Context) error, func() string) {
			vhost := servers.SharedRabbitMQ(t).VHost(t)
			conn, err := amqp.Dial(vhost)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ch.QueueDeclare("events", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := ch.QueueBind("events", "outbox.event.order", "amq.topic", false, nil); err != nil {
				t.Fatal(err)
			}
			sink := debeziumserver.DebeziumRabbitMQ(vhost)
			sink["debezium.sink.rabbitmq.exchange"] = "amq.topic"
			sink["debezium.sink.rabbitmq.routingKey.source"] = "topic"
			d := debeziumserver.StartDebezium(t, debeziumserver.DebeziumOptions{DB: db, Source: source, Sink: sink})
			return d.Stop, func() string {
				m, ok, err := ch.Get("events", true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return ""
				}
				return string(m.Body)
			}
		},
	}
	for name, start := range run {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
			defer cancel()
			db := servers.SharedPostgres(t).Database(t)
			conn, err := pgx.Connect(ctx, db)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(ctx)
			if _, err := conn.Exec(ctx, table); err != nil {
				t.Fatal(err)
			}
			source, err := debeziumserver.DebeziumSource(db, "outbox")
			if err != nil {
				t.Fatal(err)
			}
			source["slot.name"] = "launch_" + name[len(name)-5:]
			debeziumserver.EventRouter(source, nil)
			stop, arrived := start(t, db, source)
			if _, err := conn.Exec(ctx, row); err != nil {
				t.Fatal(err)
			}
			const want = `{"a": 1}`
			for got := ""; got != want; got = arrived() {
				if ctx.Err() != nil {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
			if err := stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

func firstRecord(t *testing.T, k *kafkaserver.Kafka, topic string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	records, err := k.Records(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	if len(records) == 0 {
		return ""
	}
	return string(records[0].Value)
}
