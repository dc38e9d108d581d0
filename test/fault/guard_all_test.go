//go:build testall

package fault

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// keepSize is max_slot_wal_keep_size in these tests.
const keepSize = 64 << 20

// smallDisk is a server that keeps little WAL for a slot.
func smallDisk(t *testing.T) *pgserver.Postgres {
	t.Helper()
	return started(t)(pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{
		"max_slot_wal_keep_size": "64MB", "max_wal_size": "48MB", "min_wal_size": "32MB",
	}}))
}

// fill has the server write so many segments of WAL, of 16 MiB, that are not the relay's, and
// remove what no slot needs: from there on it gives up a slot that keeps too much.
func fill(s *stand.Stand, segments int) {
	s.T.Helper()
	s.SQL(`CREATE TABLE IF NOT EXISTS filler ()`)
	for range segments {
		s.SQL(`INSERT INTO filler DEFAULT VALUES`)
		s.SQL(`SELECT pg_switch_wal()`)
	}
	s.SQL(`CHECKPOINT`)
}

// retained is how much WAL the slot keeps; the test ends if the server has given it up.
func retained(s *stand.Stand) (bytes int64) {
	s.T.Helper()
	var status string
	s.Query([]any{&bytes, &status}, `SELECT coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, 0), wal_status FROM pg_replication_slots WHERE slot_name = $1`, s.Slot)
	if status == "lost" {
		s.T.Fatal("the slot is lost")
	}
	return bytes
}

// guarded waits until the disk guard is on.
func guarded(s *stand.Stand, r *runner.Relay) {
	s.T.Helper()
	s.Until("the disk guard to be on", func() bool { return s.Metric(r, "cdc_relay_guard_active") == 1 })
}

// outlast writes more WAL than a slot may keep. Each part waits until the slot has moved, which no
// broker helps with.
func outlast(s *stand.Stand) {
	s.T.Helper()
	for range 6 {
		fill(s, 1)
		moves(s)
	}
}

// moves waits until the slot keeps a quarter of what it may.
func moves(s *stand.Stand) {
	s.T.Helper()
	s.Until("the slot to move", func() bool {
		s.SQL(`CHECKPOINT`) // it logs what a slot needs to move
		return retained(s) < keepSize/4
	})
}

// The broker is away while the server writes more WAL than the slot may keep: the slot survives,
// because events are deferred; they come in order when the broker is back, and then events go
// directly again. On Kafka the relay is killed meanwhile: the new one has no metadata of any topic.
func TestDiskGuard(t *testing.T) {
	stand.Parallel(t)
	s := stand.On(t, smallDisk(t), stand.SharedKafka(t))
	s.Guard, s.Keys = `defer_at: 50%, max_bytes: 1GiB`, 1000
	s.Delivery = fmt.Sprintf("max_in_flight: %d", budget)
	r := s.StartWatched()
	stop := s.Load(300)
	s.More(300)
	s.Broker.Cut()
	fill(s, 3)
	guarded(s, r)
	moves(s) // or what comes now would be too much
	s.Must(r.Kill())
	bound := budget + s.Unreported()
	r = s.Launch()
	s.Unready(r, "") // it answers
	fill(s, 3)
	guarded(s, r)
	moves(s)
	outlast(s)
	s.Must(s.Broker.Restore())
	s.Until("the disk guard to be off", func() bool { return s.Metric(r, "cdc_relay_guard_active") == 0 })
	s.More(500)
	stop()
	s.Check(bound)
	s.AwaitEmpty()
	direct(s, r)
}

// direct delivers a few events, none of which is deferred.
func direct(s *stand.Stand, r *runner.Relay) {
	s.T.Helper()
	const deferred = `cdc_relay_events_total{outcome="retry"}`
	before := s.Metric(r, deferred)
	s.Deliver(20)
	if n := s.Metric(r, deferred) - before; n != 0 {
		s.T.Errorf("%.0f of 20 events were deferred while nothing waits", n)
	}
}

// At guard.max_bytes nothing more is deferred: the slot keeps WAL as without a guard, and when the
// broker is back nothing is lost. In the next outage the guard defers again, though the tables have
// kept their size.
func TestDiskGuardIsFull(t *testing.T) {
	stand.Parallel(t)
	s := stand.On(t, smallDisk(t), stand.SharedRabbitMQ(t))
	s.Guard, s.Keys = `defer_at: 1MiB, max_bytes: 1MiB`, 1000
	s.Delivery = fmt.Sprintf("max_in_flight: %d, max_in_flight_bytes: 64KiB", budget) // it counts
	r := s.StartWatched()
	stop := s.Load(500)
	s.More(100)
	s.Broker.Cut()
	s.Until("the disk guard to be full", func() bool { return s.Metric(r, "cdc_relay_guard_full") == 1 })
	size := func() (bytes int64) {
		s.Query([]any{&bytes}, `SELECT pg_total_relation_size('cdc_relay.retry') + pg_total_relation_size('cdc_relay.dead_letter')`)
		return bytes
	}
	at, rows, behind := size(), s.RowsIn(checker.Deferred), retained(s)
	if at > 4<<20 { // it is measured once a second, in which 500 rows of 700 bytes come
		t.Errorf("the tables have %d bytes, guard.max_bytes is 1 MiB", at)
	}
	fill(s, 1)
	// what was in flight, and was read, is still written
	if now := s.RowsIn(checker.Deferred); now > rows+2*budget || rows == 0 {
		t.Errorf("%d events were deferred when the guard was full, %d are now", rows, now)
	}
	if retained(s) < behind+(4<<20) {
		t.Error("the slot has moved though nothing is deferred")
	}
	s.Must(s.Broker.Restore())
	s.Until("the guard to be off", func() bool { return s.Metric(r, "cdc_relay_guard_full") == 0 })
	s.Until("what was deferred to be delivered", func() bool { return s.RowsIn(checker.Deferred) == 0 })
	// the files stay large, as with one row at their end
	s.Until("a vacuum that finds no snapshot in its way", func() (free bool) {
		s.SQL(`VACUUM (TRUNCATE false) cdc_relay.retry`)
		s.Query([]any{&free}, `SELECT n_dead_tup = 0 FROM pg_stat_user_tables WHERE relid = 'cdc_relay.retry'::regclass`)
		return free
	})
	large := size()
	s.Broker.Cut()
	s.Until("events to be deferred again", func() bool { return s.RowsIn(checker.Deferred) > 100 })
	if now := size(); now > large+(1<<18) {
		t.Errorf("the tables had %d bytes, and have %d with new rows in their free space", large, now)
	}
	s.Must(s.Broker.Restore())
	s.Until("the guard to be off again", func() bool { return s.Metric(r, "cdc_relay_guard_active")+s.Metric(r, "cdc_relay_guard_full") == 0 })
	s.More(500)
	stop()
	s.Check(2 * budget)
	s.AwaitEmpty()
}
