//go:build testall

package fault

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

const binaryOutbox = `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload bytea, headers jsonb)`

// Events of extreme shape are delivered byte for byte, or are dead letters; the relay lives and the
// others go on.
func TestExtremeEvents(t *testing.T) {
	stand.Parallel(t)
	s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedRabbitMQ(t))
	s.Delivery = "max_in_flight_bytes: 1MiB, lanes: 256"
	s.SQL(binaryOutbox)
	bodies := bodiesOf(s, "outbox.events")
	r := s.Start()

	big := bytes.Repeat([]byte{0, 0xff, 0x80, '\n', '"'}, 4<<20)
	delivered := map[string][]byte{
		"20 MB, more than the in-flight budget": big,
		"empty":                                 {},
		"NULL":                                  nil,
		"not UTF-8":                             {0xc3, 0x28, 0, 0xff, '\\', 'x'},
		"one byte":                              {0},
	}
	const insert = `INSERT INTO outbox VALUES ($1, 'a', $2, 't', $3, $4)`
	for name, payload := range delivered {
		s.SQL(insert, name, "key of "+name, payload, nil)
	}
	headers := new(strings.Builder)
	for i := range 10_000 {
		fmt.Fprintf(headers, `, "header-%d": "value-%d"`, i, i)
	}
	s.SQL(insert, "10,000 headers", "many", []byte("x"), "{"+headers.String()[2:]+"}")
	s.SQL(insert, "a key of 1 MB", strings.Repeat("k", 1<<20), []byte("x"), nil)
	s.AwaitRows(checker.Open, 2)
	for i := range 20 { // after the two that are dead
		name := fmt.Sprintf("after %d", i)
		delivered[name] = []byte(name)
		s.SQL(insert, name, name, delivered[name], nil)
	}

	s.Must(s.Consumer.WaitCount(s.Context(), len(delivered)))
	got := bodies(len(delivered))
	for name, want := range delivered {
		if !bytes.Equal(got[name], want) {
			t.Errorf("%s: the body has %d bytes, want the payload's %d", name, len(got[name]), len(want))
		}
	}
	deadOf(s, r, "too_large", "10,000 headers", "a key of 1 MB")
	if !r.Running() {
		t.Error("the relay has ended")
	}
}

// The settings of the relay's role do not touch the payload.
func TestRoleWithByteaOutputEscape(t *testing.T) {
	stand.Parallel(t)
	role := fmt.Sprintf("escape_%d", time.Now().UnixNano())
	pg := servers.SharedPostgres(t)
	// after the database, where it owns things
	t.Cleanup(func() { stand.SQLOn(t, pg.URL("postgres"), "DROP ROLE "+role) })
	s := stand.Bare(t, pg, stand.SharedRabbitMQ(t))
	s.SQL(binaryOutbox)
	s.SQL(fmt.Sprintf(`CREATE ROLE %s SUPERUSER REPLICATION LOGIN`, role))
	for _, setting := range []string{"bytea_output = escape", "client_encoding = latin1", "extra_float_digits = -15", "synchronous_commit = off"} {
		s.SQL(fmt.Sprintf(`ALTER ROLE %s SET %s`, role, setting))
	}
	s.User = role
	bodies := bodiesOf(s, "outbox.events")
	s.Start()
	want := []byte{0, 0x27, 0x5c, 0x80, 0xff, 'a', 0xc3, 0xa9}
	s.SQL(`INSERT INTO outbox VALUES ('ä', 'a', 'k', 't', $1, NULL)`, want)
	s.Must(s.Consumer.WaitCount(s.Context(), 1))
	if got := bodies(1); !bytes.Equal(got["ä"], want) {
		t.Errorf("bodies are %x, want %x", got, want)
	}
}

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
