// Events that nothing takes: for a destination that is not there, and poison.

package stand

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// Routed is a stand that routes, on a place whose destination "later" is not made yet; its consumer
// reads it as soon as it is. The topic of the orders takes no more than some kB.
func Routed(t *testing.T, kind Kind) *Stand {
	t.Helper()
	s := New(t, kind.routed(t))
	s.Route()
	return s
}

func (k Kind) routed(t testing.TB) Place {
	t.Helper()
	if k.Name == "Kafka" {
		return SharedKafkaWith(t, Topics{More: []string{later}, Configs: map[string]string{"max.message.bytes": smallest}})
	}
	return k.Shared(t)
}

const (
	later    = "later"
	smallest = "10000" // bytes of a message of Kafka
	poison   = 20_000
)

// Route has each row name its destination itself: so that the events of one key go to several. The
// usual one is there. It is called before the first relay is started.
func (s *Stand) Route() {
	s.T.Helper()
	s.usual = "outbox.events"
	if s.Kafka != nil {
		s.usual = s.Kafka.Topic("order")
		s.Kafka.Template = "{column:destination}"
	} else {
		s.Sink = strings.TrimPrefix(s.Sink+`, exchange: "{column:destination}", routing_key: "{column:routing_key}"`, ", ")
		s.DeclareExchange(s.Later()) // without a queue: a missing exchange waits for an operator
	}
	s.Must(load.RouteOutbox(s.Context(), s.DB, s.usual))
}

// Usual is the name of the destination that is there.
func (s *Stand) Usual() string { return s.usual }

// Later is the name of the destination that is not made yet: of RabbitMQ that no queue is bound to.
func (s *Stand) Later() string {
	if s.Kafka != nil {
		return s.Kafka.Topic(later)
	}
	return "later.events"
}

// MakeLater makes it.
func (s *Stand) MakeLater() {
	s.T.Helper()
	if s.Kafka == nil {
		s.MakeExchange(s.Later())
		return
	}
	s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), s.Later(), 3, 1, nil))
}

// RefuseLater has that destination refuse an event while nothing else is on its way. It is called
// before a load whose rows go there, when a relay leads: RabbitMQ ends a channel over the first of
// them, and what else was on it, and perhaps taken, would come twice.
func (s *Stand) RefuseLater() {
	s.T.Helper()
	before := s.RowsIn(checker.Deferred)
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, destination, routing_key)
		VALUES (gen_random_uuid(), 'order', 'first', 'placed', '{"key": "first", "seq": 1}', $1, 'order.placed')`, s.Later())
	s.AwaitRows(checker.Deferred, before+1)
}

// ToLater are rows that go there, a share of those of the first keys (0: of all).
func (s *Stand) ToLater(share float64, keys int) load.Kind {
	return load.Kind{Share: share, Keys: keys, Destination: s.Later()}
}

// Poison are rows that no broker of the kind takes, on a stand that routes: of RabbitMQ by a
// routing key that is too long for the protocol, of Kafka by their size.
func (s *Stand) Poison(share float64, keys int) load.Kind {
	if s.Kafka != nil {
		return load.Kind{Share: share, Keys: keys, Payload: poison}
	}
	return load.Kind{Share: share, Keys: keys, RoutingKey: strings.Repeat("too-long.", 40)}
}

// Antidote makes a replay of poison succeed: it returns what the command needs.
func (s *Stand) Antidote() (arguments []string) {
	s.T.Helper()
	if s.Kafka == nil {
		return []string{"--routing-key", "order.placed"}
	}
	s.Must(s.Kafka.Cluster.SetTopicConfig(s.Context(), s.Kafka.Topic("order"), "max.message.bytes", "1000000"))
	return nil
}
