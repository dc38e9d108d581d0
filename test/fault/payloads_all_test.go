//go:build testall

package fault

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

const binaryOutbox = `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload bytea, headers jsonb)`

const insertExtreme = `INSERT INTO outbox VALUES ($1, $2, $3, 't', $4, $5)`

// extremeEvents inserts events of extreme shape, waits until so many of them and of earlier ones
// are dead, and inserts ordinary ones behind them. Those that it returns are to be delivered.
func extremeEvents(s *stand.Stand, dead int) (delivered map[string][]byte) {
	s.T.Helper()
	delivered = map[string][]byte{
		"empty":     {},
		"NULL":      nil,
		"not UTF-8": {0xc3, 0x28, 0, 0xff, '\\', 'x'},
		"one byte":  {0},
	}
	for name, payload := range delivered {
		s.SQL(insertExtreme, name, "order", "key of "+name, payload, nil)
	}
	headers := new(strings.Builder)
	for i := range 10_000 {
		fmt.Fprintf(headers, `, "header-%d": "value-%d"`, i, i)
	}
	s.SQL(insertExtreme, "10,000 headers", "order", "many", []byte("x"), "{"+headers.String()[2:]+"}")
	s.SQL(insertExtreme, "a key of 1 MB", "order", strings.Repeat("k", 1<<20), []byte("x"), nil)
	s.AwaitRows(checker.Open, dead)
	for i := range 20 {
		name := fmt.Sprintf("after %d", i)
		delivered[name] = []byte(name)
		s.SQL(insertExtreme, name, "order", name, delivered[name], nil)
	}
	return delivered
}

// twentyMB is more than the in-flight budget.
var twentyMB = bytes.Repeat([]byte{0, 0xff, 0x80, '\n', '"'}, 4<<20)

// bodiesOf binds one more queue to an exchange, which it makes if need be; take waits for n
// messages in it and returns their bodies, by id.
func bodiesOf(s *stand.Stand, exchange string) (take func(n int) map[string][]byte) {
	s.T.Helper()
	s.AMQP(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil)
	})
	s.MakeQueue("bodies", exchange, "#", nil)
	return func(n int) map[string][]byte {
		s.T.Helper()
		got := map[string][]byte{}
		s.Until(fmt.Sprintf("%d messages in the queue", n), func() bool {
			s.AMQP(func(ch *amqp.Channel) error {
				for {
					msg, ok, err := ch.Get("bodies", true)
					if err != nil || !ok {
						return err
					}
					got[msg.MessageId] = msg.Body
				}
			})
			return len(got) >= n
		})
		return got
	}
}

// Events of extreme shape are delivered byte for byte, or are dead letters; the relay lives and the
// others go on. What is too large for one topic is not for another one.
func TestKafkaExtremeEvents(t *testing.T) {
	stand.Parallel(t)
	s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedKafkaWith(t, stand.Topics{More: []string{"large"}}))
	limit := map[string]string{"max.message.bytes": fmt.Sprint(32 << 20)}
	s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), s.Kafka.Topic("large"), 3, 1, limit))
	s.Delivery = "max_in_flight_bytes: 4MiB"
	s.SQL(binaryOutbox)
	r := s.Start()

	s.SQL(insertExtreme, "20 MB where it is allowed", "large", "big", twentyMB, nil)
	s.SQL(insertExtreme, "20 MB", "order", "big", twentyMB, nil)
	delivered := extremeEvents(s, 2)
	delivered["10,000 headers"] = []byte("x")
	s.Must(s.Consumer.WaitCount(s.Context(), len(delivered)+1))
	got := map[string]kafkaserver.Record{}
	for _, record := range s.Kafka.Records("order") {
		got[record.Header("id")] = record
	}
	for name, want := range delivered {
		record, ok := got[name]
		if !ok || !bytes.Equal(record.Value, want) || (record.Value == nil) != (want == nil) {
			t.Errorf("%s: arrived %t, the value has %d bytes, want the payload's %d", name, ok, len(record.Value), len(want))
		}
	}
	if record := got["10,000 headers"]; record.Header("header-9999") != "value-9999" {
		t.Errorf("of 10,000 headers %d arrived", len(record.Headers))
	}
	if large := s.Kafka.Records("large"); len(large) != 1 || !bytes.Equal(large[0].Value, twentyMB) {
		t.Errorf("the large topic has %d records, want one of 20 MB", len(large))
	}
	deadOf(s, r, "too_large", "20 MB", "a key of 1 MB")
	if !r.Running() {
		t.Error("the relay has ended")
	}

	// The topic's limit is raised: what was dead is replayed, without a restart.
	s.Must(s.Kafka.Cluster.SetTopicConfig(s.Context(), s.Kafka.Topic("order"), "max.message.bytes", limit["max.message.bytes"]))
	operated(s, "dead-letters", "replay", "--all", "--wait", "10m")
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{"20 MB", "a key of 1 MB"}))
}
