// Leader change: a leader that dies, or is cut off silently, and the standby that takes its place.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const (
	leaderChangeRate = 1000            // rows a second
	silentTimeout    = 2 * time.Second // source.wal_sender_timeout where the leader is cut off
)

// leaderChange is two relays under a live load, each by a way of its own to PostgreSQL, and the
// consumer of what they publish.
type leaderChange struct {
	*stand
	config   string // of the relays, whose way to PostgreSQL is replaced
	consumer consumers.Witness

	leader, standby *candidate

	work    *load.Workload
	endWork func() error // and waits for it

	mu sync.Mutex
	// id: when its COMMIT was about to be sent, of those since the leader was lost last
	committed map[string]time.Time
}

// candidate is a relay that leads or stands by.
type candidate struct {
	relay *runner.Relay
	way   *netproxy.Proxy
}

// leaderChanges measures, from the loss of the leader, the time until the first event arrives at
// the consumer whose COMMIT was sent after it: that one only the new leader can have published.
func (s *stand) leaderChanges(ctx context.Context, listen func(context.Context) (*listener, error)) (_ []result, err error) {
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	t := &leaderChange{stand: s, config: l.config, consumer: l, committed: map[string]time.Time{}}
	defer t.close()
	if err := execSQL(ctx, s.db, "TRUNCATE outbox"); err != nil {
		return nil, err
	}
	if err := t.begin(ctx); err != nil {
		return nil, t.explained(err)
	}
	killed, err := t.times(ctx, s.size.kills, t.kill)
	if err != nil {
		return nil, t.explained(err)
	}
	silent, err := t.times(ctx, s.size.faults, t.cut)
	if err != nil {
		return nil, t.explained(err)
	}
	duplicates, rows, err := t.end(ctx)
	if err != nil {
		return nil, t.explained(err)
	}
	live := fmt.Sprintf(" under %s/s: to the first event at a consumer that was committed after it, the worst", thousands(leaderChangeRate))
	return []result{{
		name: "the leader is killed (SIGKILL)" + live, ours: spread(killed, milliseconds), value: slices.Max(killed), unit: "s",
		must: 1, aim: 0.5, pairs: len(killed), note: fmt.Sprintf("%d of %s events came twice, those of the cuts among them", duplicates, thousands(rows)),
	}, {
		name: fmt.Sprintf("the leader is cut off silently, `wal_sender_timeout: %s`,%s", silentTimeout, live), ours: spread(silent, milliseconds),
		value: slices.Max(silent), unit: "s", must: silentTimeout.Seconds() + 1, aim: silentTimeout.Seconds() + 0.5, pairs: len(silent),
	}}, nil
}

// explained adds the end of the relays' logs to an error.
func (t *leaderChange) explained(err error) error {
	for _, c := range []*candidate{t.leader, t.standby} {
		if c != nil && c.relay != nil {
			err = fmt.Errorf("%w: %s", err, c.relay.Log())
		}
	}
	return err
}

// begin starts a leader, a standby and the load.
func (t *leaderChange) begin(ctx context.Context) (err error) {
	if t.leader, err = t.start(ctx); err == nil {
		t.standby, err = t.start(ctx)
	}
	if err != nil {
		return err
	}
	t.work = &load.Workload{URL: t.db, Writers: 4, Keys: 1000, Rate: leaderChangeRate, Payload: 200, Seed: 1, OnCommit: t.note}
	t.endWork = startWork(ctx, t.work)
	return nil
}

// start starts a relay by a way of its own, and waits until it is ready: the first one to lead, the
// other one to stand by.
func (t *leaderChange) start(ctx context.Context) (_ *candidate, err error) {
	c := &candidate{}
	if c.way, err = netproxy.Start(t.pg.Addr()); err != nil {
		return nil, err
	}
	via := strings.Replace(t.config, t.pg.Addr(), c.way.Addr(), 1)
	via = strings.Replace(via, "source:\n", fmt.Sprintf("source:\n  wal_sender_timeout: %s\n", silentTimeout), 1)
	if c.relay, err = t.startLive(ctx, via); err != nil {
		c.way.Close()
		return nil, err
	}
	return c, nil
}

func (c *candidate) end() error {
	if c == nil {
		return nil
	}
	err := c.relay.Kill()
	c.way.Close()
	return err
}

// close ends what is left.
func (t *leaderChange) close() {
	if t.endWork != nil {
		_ = t.endWork() //nolint:errcheck // there is an error already
	}
	for _, c := range []*candidate{t.leader, t.standby} {
		_ = c.end() //nolint:errcheck // it has ended in order, or there is an error already
	}
}

// times loses the leader so often.
func (t *leaderChange) times(ctx context.Context, n int, lose func(context.Context) error) (took []float64, err error) {
	for range n {
		one, err := t.lost(ctx, lose)
		if err != nil {
			return nil, err
		}
		t.say("    %s", milliseconds(one))
		took = append(took, one)
	}
	return took, nil
}

// lost loses the leader at any moment between two questions of the standby, while events flow, and
// sees the standby lead. lose returns with a new standby.
func (t *leaderChange) lost(ctx context.Context, lose func(context.Context) error) (seconds float64, err error) {
	if err := t.flows(ctx); err != nil {
		return 0, err
	}
	if err := waitUntil(ctx, time.Now().Add(rand.N(500*time.Millisecond))); err != nil {
		return 0, err
	}
	from, _ := t.consumer.Count()
	t.mu.Lock()
	t.committed = map[string]time.Time{}
	t.mu.Unlock()
	began := time.Now()
	if err := lose(ctx); err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		t.mu.Lock()
		for _, d := range t.consumer.DeliveriesFrom(from) {
			if at, ok := t.committed[d.ID]; ok && at.After(began) {
				t.mu.Unlock()
				return float64(d.At-began.UnixNano()) / 1e9, nil
			}
		}
		t.mu.Unlock()
		if err := waitUntil(bounded, time.Now().Add(50*time.Millisecond)); err != nil {
			return 0, fmt.Errorf("wait for an event of the new leader: %w", err)
		}
	}
}

// flows waits until a good part of a second's events has arrived.
func (t *leaderChange) flows(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	have, _ := t.consumer.Count()
	return t.consumer.WaitCount(bounded, have+leaderChangeRate/2)
}

// note keeps when a row was committed, of those since the leader was lost.
func (t *leaderChange) note(rows []checker.Row, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range rows {
		t.committed[r.ID] = at
	}
}

// kill ends the leader without a word. The new standby is started when the old one leads: here
// nothing else competes for the machine.
func (t *leaderChange) kill(ctx context.Context) error {
	if err := t.leader.relay.Kill(); err != nil {
		return err
	}
	if err := t.leads(ctx, t.standby); err != nil {
		return err
	}
	t.leader.way.Close()
	t.leader, t.standby = t.standby, nil
	var err error
	t.standby, err = t.start(ctx)
	return err
}

// cut keeps every byte back that the leader and PostgreSQL send to each other, until the standby
// leads; then the former leader stands by.
func (t *leaderChange) cut(ctx context.Context) error {
	old := t.leader
	old.way.Hold(netproxy.Up)
	old.way.Hold(netproxy.Down)
	if err := t.leads(ctx, t.standby); err != nil {
		return err
	}
	old.way.Reset() // what was kept back is gone
	old.way.Release(netproxy.Up)
	old.way.Release(netproxy.Down)
	t.leader, t.standby = t.standby, old
	if err := t.answers(ctx, old, "/readyz", 200); err != nil {
		return err
	}
	return t.answers(ctx, old, "/readyz?role=leader", 503)
}

func (t *leaderChange) leads(ctx context.Context, c *candidate) error {
	return t.answers(ctx, c, "/readyz?role=leader", 200)
}

func (t *leaderChange) answers(ctx context.Context, c *candidate, path string, want int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s of a relay did not answer with %d", path, want))
	defer cancel()
	for {
		if code, _, err := c.relay.Get(ctx, path); err == nil && code == want {
			return nil
		}
		if err := waitUntil(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// end stops the load and both relays, and checks what has arrived.
func (t *leaderChange) end(ctx context.Context) (duplicates, rows int, err error) {
	if err := t.endWork(); err != nil {
		return 0, 0, err
	}
	return t.checkLive(ctx, t.work, t.consumer, t.standby.relay, t.leader.relay)
}
