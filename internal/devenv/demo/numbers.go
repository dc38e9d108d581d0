// The numbers that the demo shows, read at intervals.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// numbers reads the committed events and the slot from the database, the arrived events from the
// consumer, and the state from the relay. No number comes from the relay.
type numbers struct {
	db       string
	relay    *runner.Relay
	consumer consumer
	meter    *meter
	show     func(string)

	mu   sync.Mutex
	now  sample
	seen int // deliveries that the meter knows
}

// sample is the last answers of the database, the consumer and the relay.
type sample struct {
	committed, delivered, duplicates int
	deferred                         int // rows of the retry table
	dead                             int // dead letters that are open
	// bytes of WAL between the slot's confirmed position and the server's
	lag   int64
	relay string // its state in its own words
}

const (
	askEvery    = 200 * time.Millisecond
	rotateEvery = 500 * time.Millisecond // a part of the meter's last two seconds
)

func (n *numbers) last() sample {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

// run asks until ctx ends.
func (n *numbers) run(ctx context.Context) {
	conn, rotated := (*pgx.Conn)(nil), time.Now()
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // only read from
		}
	}()
	for every(ctx, askEvery) {
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = pgx.Connect(ctx, n.db)
		}
		if err == nil {
			err = n.ask(ctx, conn)
		}
		if err != nil {
			continue // the next time
		}
		n.show(n.line())
		if time.Since(rotated) >= rotateEvery {
			rotated = time.Now()
			n.meter.rotate()
		}
	}
}

// ask asks the consumer before the database, so that never more seems delivered than was committed.
func (n *numbers) ask(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n.takeArrivals()
	var s sample
	s.delivered, s.duplicates = n.consumer.Count()
	s.relay = n.relayState(ctx)
	err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM outbox),
		(SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0)::bigint
		   FROM pg_replication_slots WHERE slot_name = $1),
		(SELECT count(*) FROM cdc_relay.retry), (SELECT count(*) FROM cdc_relay.dead_letter WHERE state = 'open')`,
		slot).Scan(&s.committed, &s.lag, &s.deferred, &s.dead)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = s
	return nil
}

// takeArrivals tells the meter what has arrived.
func (n *numbers) takeArrivals() {
	n.mu.Lock()
	defer n.mu.Unlock()
	arrived := n.consumer.DeliveriesFrom(n.seen)
	n.seen += len(arrived)
	n.meter.arrive(arrived)
}

// relayState is the relay's state in its own words.
func (n *numbers) relayState(ctx context.Context) string {
	var status struct {
		State string `json:"state"`
	}
	_, body, err := n.relay.Get(ctx, "/api/v1/status")
	if err != nil || json.Unmarshal([]byte(body), &status) != nil || status.State == "" {
		return "no answer"
	}
	return status.State
}

// line returns the numbers in one line. The most important ones come first, for a narrow terminal.
func (n *numbers) line() string {
	s, latency, broker := n.last(), n.meter.last(), "down"
	if n.consumer.Connected() {
		broker = "up"
	}
	p50, p99 := "-", "-"
	if latency.count > 0 {
		p50, p99 = console.Short(latency.p50), console.Short(latency.p99)
	}
	return fmt.Sprintf("committed %s, delivered %s, deferred %s, p50 %s, p99 %s, broker %s, relay: %s, dead letters %s, slot lag %s, duplicates %s",
		console.Thousands(s.committed), console.Thousands(s.delivered), console.Thousands(s.deferred), p50, p99, broker, s.relay, console.Thousands(s.dead), console.Size(max(0, s.lag)), console.Thousands(s.duplicates))
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

func wait(ctx context.Context, d time.Duration) error {
	if !every(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
