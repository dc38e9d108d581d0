//go:build testall

package fault

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// One transaction of many rows, interrupted in the middle.

// With a broker that is gone the in-flight budget is full and nothing is read. The session with the
// server lives all the same: reports flow, the server does not give it up.
func TestFullBudgetKeepsTheSession(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.Timeout = "10s" // a busy machine may stand still for half of that
		s.Delivery = "max_in_flight: 50"
		r := s.Start()
		s.Deliver(30)
		session := s.Walsender()
		s.Broker.Cut()
		s.Write(300)
		s.Unready(r, "broker down")
		inFlight(s, r, 50)
		s.WriteAt(300, 20) // takes longer than wal_sender_timeout
		if now := s.Walsender(); now != session {
			s.T.Errorf("the slot is held by process %d, and was by %d: the session was lost", now, session)
		}
		s.Must(s.Broker.Restore())
		s.Check(s.Repeats(s.Keys))
	})
}

const manyRows = 5000

// insertMany is one transaction of manyRows rows over 50 keys, numbered in their order.
const insertMany = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
	SELECT gen_random_uuid(), 'order', 'm' || i % 50, 'placed', jsonb_build_object('key', 'm' || i % 50, 'seq', i / 50 + 1)
	FROM generate_series(0, $1 - 1) i`

// The stream ends inside the transaction, twice: the process goes on at the next row, and sends
// nothing twice.
func TestStreamEndsInsideATransaction(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.Delivery = "max_in_flight: 200"
		r := s.Start()
		delay := 20 * time.Millisecond // or all would have gone before the last end
		// one event of each key goes at a time to RabbitMQ, the whole in-flight budget to Kafka
		if s.Kafka != nil {
			delay = 50 * time.Millisecond
		}
		s.Broker.Delay(delay)
		s.SQL(insertMany, manyRows)
		for range 2 {
			s.More(500)
			s.SQL(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, s.Slot)
			s.More(500)
		}
		s.Leads(r)
		s.Check(0)
	})
}
