// The probe asks the database and the relay for the numbers of the frame.

package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/display"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// probe asks the witnesses again and again: the database for what was committed and for the slot,
// the consumer for what arrived, the relay for its own state in words. No number of the demo comes
// from the relay.
type probe struct {
	db       string
	relay    *runner.Relay
	consumer consumer

	mu  sync.Mutex
	now display.Sample
}

const probeEvery = 200 * time.Millisecond

func newProbe(c *cast) *probe {
	return &probe{db: c.db, relay: c.relay, consumer: c.broker.consumer(), now: display.Sample{At: time.Now(), Postgres: "up", Relay: "ready"}}
}

func (p *probe) Last() display.Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *probe) note(change func(*display.Sample)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
}

// run asks until ctx ends. A witness that does not answer keeps nobody waiting for the other.
func (p *probe) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { p.askDatabase(ctx) })
	both.Go(func() {
		for every(ctx, probeEvery) {
			state := p.askRelay(ctx)
			p.note(func(s *display.Sample) { s.Relay = state })
		}
	})
	both.Wait()
}

// askDatabase keeps one connection for as long as it lasts.
func (p *probe) askDatabase(ctx context.Context) {
	for every(ctx, probeEvery) {
		conn, err := pgx.Connect(ctx, p.db)
		for err == nil && every(ctx, probeEvery) {
			err = p.count(ctx, conn)
		}
		if ctx.Err() == nil {
			p.note(func(s *display.Sample) { s.Postgres = "down" })
		}
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // only read from
		}
	}
}

// count asks the consumer before the database, so that never more seems delivered than was
// committed.
func (p *probe) count(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	delivered, duplicates := p.consumer.Count()
	var committed, deferred, dead int
	var lag int64
	err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM outbox),
		(SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0)::bigint
		   FROM pg_replication_slots WHERE slot_name = $1),
		(SELECT count(*) FROM cdc_relay.retry), (SELECT count(*) FROM cdc_relay.dead_letter WHERE state = 'open')`,
		slot).Scan(&committed, &lag, &deferred, &dead)
	if err != nil {
		return err
	}
	p.note(func(s *display.Sample) {
		s.At, s.Postgres, s.Lag = time.Now(), "up", max(0, lag)
		s.Committed, s.Delivered, s.Duplicates, s.Deferred, s.Dead = committed, delivered, duplicates, deferred, dead
	})
	return nil
}

// askRelay is the relay's state in its own words.
func (p *probe) askRelay(ctx context.Context) string {
	var status struct {
		State string `json:"state"`
	}
	_, body, err := p.relay.Get(ctx, "/api/v1/status")
	if err != nil || json.Unmarshal([]byte(body), &status) != nil || status.State == "" {
		return "no answer"
	}
	return status.State
}

// every waits and reports true, or false as soon as ctx ends.
func every(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
