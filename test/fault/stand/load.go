// Writing: the order service on the stand's database.

package stand

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// Write commits rows until n are written, rolled back ones counted, and returns when all is
// committed. A few more may be.
func (s *Stand) Write(n int) {
	s.T.Helper()
	s.Must(s.workload(n, 0).Run(s.Context()))
}

// WriteAt is Write at so many rows per second.
func (s *Stand) WriteAt(n int, rate float64) {
	s.T.Helper()
	s.Must(s.workload(n, rate).Run(s.Context()))
}

// Load writes so many rows per second in the background until stop is called, or the test ends.
func (s *Stand) Load(rate float64) (stop func()) {
	s.T.Helper()
	w := s.workload(0, rate)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.T.Error(err)
		}
	})
	s.T.Cleanup(stop)
	return stop
}

const (
	writers   = 4
	rowsPerTx = 3 // at the most
)

func (s *Stand) workload(events int, rate float64) *load.Workload {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &load.Workload{
		URL: s.writable(), Writers: writers, Keys: s.Keys, RowsPerTx: rowsPerTx, Rollbacks: 0.1, SavepointRollbacks: 0.05,
		Events: int64(events), Rate: rate, Seed: uint64(len(s.loads) + 1), Kinds: s.Kinds, Routed: s.usual, Personal: true,
	}
	s.loads = append(s.loads, w)
	return w
}

// writable is the address of the database for a service that finds the primary by itself.
func (s *Stand) writable() string {
	if len(s.Hosts) == 0 {
		return s.DB
	}
	u, err := url.Parse(s.DB)
	s.Must(err)
	u.Host, u.RawQuery = strings.Join(s.Hosts, ","), "sslmode=disable&target_session_attrs=read-write"
	return u.String()
}

// Committed is how many rows the loads know to be committed.
func (s *Stand) Committed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(0)
	for _, w := range s.loads {
		n += w.Committed()
	}
	return int(n)
}

func (s *Stand) rolledBack() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.loads {
		ids = append(ids, w.RolledBack()...)
	}
	return ids
}

// Insert is a statement that commits one row more, the only one of its key.
func Insert(table, aggregate, key string) string {
	return fmt.Sprintf(`INSERT INTO %s (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), '%s', '%[3]s', 'placed', '{"key": "%[3]s", "seq": 1}');`, table, aggregate, key)
}

// InsertReturning is Insert, and returns the row's id.
func InsertReturning(table, aggregate, key string) string {
	return strings.TrimSuffix(Insert(table, aggregate, key), ";") + " RETURNING id::text"
}

// Arrived waits until so many rows as are committed at the call have arrived.
func (s *Stand) Arrived() {
	s.T.Helper()
	s.Must(s.Consumer.WaitCount(s.Context(), s.Committed()))
}

// Deliver is Write and Arrived.
func (s *Stand) Deliver(n int) {
	s.T.Helper()
	s.Write(n)
	s.Arrived()
}

// More waits until n more rows than now have arrived, and returns how many have.
func (s *Stand) More(n int) int {
	s.T.Helper()
	now, _ := s.Consumer.Count()
	s.Must(s.Consumer.WaitCount(s.Context(), now+n))
	return now + n
}

// Fresh waits until n rows more than are committed now have arrived: at least n, but for the few
// transactions that are under way, were committed after the call. So the relay has a connection
// that it made after everything that was done before.
func (s *Stand) Fresh(n int) {
	s.T.Helper()
	s.Must(s.Consumer.WaitCount(s.Context(), s.Committed()+n))
}

// Of counts what has arrived at an exchange or topic, each event once.
func (s *Stand) Of(destination string) int {
	s.T.Helper()
	ids := map[string]bool{}
	for _, d := range s.Consumer.Deliveries() {
		if d.Exchange == destination || s.Kafka != nil && d.From.Topic == destination {
			ids[d.ID] = true
		}
	}
	return len(ids)
}

// MoreOf waits until n more events than now have arrived at an exchange or topic.
func (s *Stand) MoreOf(destination string, n int) {
	s.T.Helper()
	now := s.Of(destination)
	s.Until(fmt.Sprintf("%d more events at %s", n, destination), func() bool { return s.Of(destination) >= now+n })
}
