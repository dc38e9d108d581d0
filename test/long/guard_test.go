//go:build nightly

// The disk guard in an outage that no disk would survive.

package long

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

var (
	guardKeys = flag.Int("guard-keys", 1_000_000, "keys of TestDiskGuardOutlastsTheLimit, each with an event of 2 kB")
	// a busy machine of two cores has deferred 1,100 of them in a second
	guardRate = flag.Int("guard-rate", 1_000, "events/s that are written there while the broker is away")
)

// TestDiskGuardOutlastsTheLimit: while the broker is away, 2 GB of events of a million keys are
// committed at a steady rate, twice what the server keeps for the slot. Nothing helps the guard:
// the writer does not wait for the slot, and checkpoints are the server's own. The slot survives,
// nothing is lost, the order is kept, and memory does not grow with the keys.
func TestDiskGuardOutlastsTheLimit(t *testing.T) {
	t.Parallel()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{
		"max_slot_wal_keep_size": "1GB", "max_wal_size": "512MB", "shared_buffers": "512MB", "checkpoint_timeout": "30s",
	}})
	await.Must(t, err)
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	s := stand.On(t, pg, stand.SharedRabbitMQ(t))
	s.Guard = `defer_at: 25%, max_bytes: 20GiB`
	r := s.Start()
	s.Deliver(30_000)
	peak := func() float64 {
		bytes, err := r.PeakRSS()
		s.Must(err)
		return float64(bytes)
	}
	before := peak()
	s.Broker.Cut()
	began := time.Now()
	const part = 1_000
	pace := time.NewTicker(part * time.Second / time.Duration(*guardRate))
	defer pace.Stop()
	kept := int64(0) // at most
	// Each step is a test, so that the run is seen to go on.
	step := func(name string, do func()) {
		t.Run(name, func(sub *testing.T) {
			s.T = sub
			defer func() { s.T = t }()
			do()
		})
	}
	write := func(seq, from, to int) {
		for first := from; first < to; first += part {
			s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
				SELECT gen_random_uuid(), 'order', 'many' || k, 'placed', jsonb_build_object('key', 'many' || k, 'seq', $1::int, 'fill',
					(SELECT string_agg(md5(random()::text || g), '') FROM generate_series(1, 54) g))
				FROM generate_series($2::int, $3::int) k`, seq, first, min(first+part, to)-1)
			var now int64
			var status string
			s.Query([]any{&now, &status}, `SELECT coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, 0), wal_status FROM pg_replication_slots WHERE slot_name = $1`, s.Slot)
			if kept = max(kept, now); status == "lost" {
				s.T.Fatalf("the slot is lost, it kept %d MiB", kept>>20)
			}
			<-pace.C
		}
	}
	const steps = 20
	early := 0.0 // when a fifth of the keys is deferred: before, the slot keeps less than defer_at
	for i := range steps {
		step(fmt.Sprintf("written/%d", i+1), func() { write(1, i**guardKeys/steps, (i+1)**guardKeys/steps) })
		var deferred int
		if s.Query([]any{&deferred}, `SELECT count(*) FROM cdc_relay.retry`); early == 0 && deferred >= *guardKeys/5 {
			early = peak()
		}
	}
	step("again", func() { write(2, 0, *guardKeys/20) })
	written := time.Since(began)
	step("deferred", func() {
		s.Until("the rest to be deferred", func() (done bool) {
			s.Query([]any{&done}, `SELECT (SELECT count(*) FROM cdc_relay.retry) >= $1`, *guardKeys+*guardKeys/20)
			return done
		})
	})
	var table, wal string
	s.Query([]any{&table, &wal}, `SELECT pg_size_pretty(pg_total_relation_size('cdc_relay.retry')), pg_size_pretty(pg_current_wal_lsn() - '0/0'::pg_lsn)`)
	t.Logf("%d keys: written in %s, %.0f events/s, deferred in %s; the slot kept %d MiB at most, the retry table has %s, the server has written %s of WAL",
		*guardKeys, written.Round(time.Second), float64(*guardKeys+*guardKeys/20)/written.Seconds(), time.Since(began).Round(time.Second), kept>>20, table, wal)
	away := peak()
	back := time.Now()
	s.Must(s.Broker.Restore())
	for i := range steps {
		step(fmt.Sprintf("delivered/%d", i+1), func() {
			s.Until("what was deferred to be delivered", func() (done bool) {
				s.Query([]any{&done}, `SELECT (SELECT count(*) FROM cdc_relay.retry) <= $1`, (steps-1-i)*(*guardKeys/steps))
				return done
			})
		})
	}
	t.Logf("delivered %s after the broker was back; memory was %.0f MiB at most before, %.0f while it was away, %.0f in the end",
		time.Since(back).Round(time.Second), before/(1<<20), away/(1<<20), peak()/(1<<20))
	s.Check(1000)
	if away > 1.3*early {
		t.Errorf("memory has grown from %.0f to %.0f MiB with the keys", early/(1<<20), away/(1<<20))
	}
}
