//go:build testall

package fault

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The stream ends inside a transaction of many rows, twice: the process goes on at the next row,
// and sends nothing twice.
func TestStreamEndsInsideATransaction(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.Delivery = "max_in_flight: 200"
		r := s.Start()
		s.Broker.Delay(50 * time.Millisecond) // or all would have gone before the last end
		s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			SELECT gen_random_uuid(), 'order', 'm' || i % 50, 'placed', jsonb_build_object('key', 'm' || i % 50, 'seq', i / 50 + 1) FROM generate_series(0, 4999) i`)
		for range 2 {
			s.More(500)
			s.SQL(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, s.Slot)
			s.More(500)
		}
		s.Leads(r)
		s.Check(0)
	})
}
