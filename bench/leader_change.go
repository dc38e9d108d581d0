// Leader change: a leader that dies, or is cut off silently, and the standby that takes its place.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// silentTimeout is source.wal_sender_timeout.
const silentTimeout = 2 * time.Second

// leaderChange is two relays under live rows, each by a way of its own to PostgreSQL.
type leaderChange struct {
	*stand
	load            load
	to              place
	rows            *phase
	leader, standby *candidate
}

// candidate is a relay that leads or stands by.
type candidate struct {
	relayProcess
	way *netproxy.Proxy
}

// leaderChangeRows measure, from the loss of the leader, the time until the first event arrives
// whose COMMIT was sent after it: that one only the new leader can have published.
func (s *stand) leaderChangeRows() []row {
	killed := &leaderChange{stand: s, load: load{keys: 1000, payload: 200, partitions: 12, heard: true}}
	cut := &leaderChange{stand: s, load: killed.load}
	return []row{{
		report: leaderChangeReport, name: "killed", title: "the leader is killed (SIGKILL) under 1,000/s", pairs: 11,
		figures: figures{gapFigure.ofTheWorst().reach(1).as("the leader is killed (11 times)")},
		around:  killed.around, ours: killed.lose(killed.kill),
	}, {
		report: leaderChangeReport, name: "cut", title: fmt.Sprintf("the leader is cut off silently, `wal_sender_timeout: %s`, under 1,000/s", silentTimeout), pairs: 3,
		figures: figures{gapFigure.ofTheWorst().reach(silentTimeout.Seconds() + 1).as(fmt.Sprintf("the leader is cut off, `wal_sender_timeout: %s` (3 times)", silentTimeout))},
		around:  cut.around, ours: cut.lose(cut.cut),
	}}
}

// around starts a leader, a standby and the rows, and in the end compares what has arrived with the
// table: nothing may be lost or out of order.
func (t *leaderChange) around(ctx context.Context, measure func() error) error {
	h := &history{repeats: true}
	err := t.at(ctx, t.relay(), t.load, h, func(to place) (err error) {
		t.to, t.leader, t.standby = to, nil, nil
		defer func() {
			for _, c := range []*candidate{t.leader, t.standby} {
				if c == nil {
					continue
				}
				if err != nil {
					err = fmt.Errorf("%w: %s", err, processes.Tail(c.Log()))
				}
				err = errors.Join(err, c.Kill())
				c.way.Close()
			}
		}()
		if t.leader, err = t.start(ctx); err != nil {
			return err
		}
		if t.standby, err = t.start(ctx); err != nil {
			return err
		}
		t.rows = t.phase(t.load, 10*time.Minute)
		enough, written := make(chan struct{}), make(chan error, 1)
		go func() { written <- t.rows.run(ctx, enough) }()
		err = measure()
		close(enough)
		if err = errors.Join(err, <-written); err != nil {
			return err
		}
		return t.allArrived(ctx, to)
	})
	t.say("    %d of %s events came twice", h.twice, thousands(h.count))
	return err
}

// allArrived waits until each committed row has come to a place.
func (s *stand) allArrived(ctx context.Context, to place) error {
	var rows int
	if err := s.ask(ctx, &rows, "SELECT count(*) FROM outbox"); err != nil {
		return err
	}
	seen, from := map[int64]bool{}, 0
	return await(ctx, 10*watchEvery, "all rows", func() (have int, done bool, err error) {
		arrived, err := to.arrived(from)
		for _, a := range arrived {
			seen[a.n] = true
		}
		from += len(arrived)
		return len(seen), len(seen) >= rows, err
	})
}

// start starts a relay by a way of its own, and waits until it is ready: the first one to lead, the
// other one to stand by.
func (t *leaderChange) start(ctx context.Context) (_ *candidate, err error) {
	c := &candidate{}
	if c.way, err = netproxy.Start(t.pg.Addr()); err != nil {
		return nil, err
	}
	p := t.relay()
	p.db = strings.Replace(t.db, t.pg.Addr(), c.way.Addr(), 1)
	p.source = fmt.Sprintf("  wal_sender_timeout: %s\n", silentTimeout)
	r, err := p.start(ctx, t.stand, t.to, t.load)
	if err != nil {
		c.way.Close()
		return nil, err
	}
	c.relayProcess = r.(relayProcess) // a relay's process is one
	if err := c.WaitReady(ctx); err != nil {
		c.way.Close()
		return nil, errors.Join(err, c.Kill())
	}
	return c, nil
}

// lose loses the leader at any moment between two questions of the standby, while events flow, and
// sees the standby lead. loss returns with a new standby.
func (t *leaderChange) lose(loss func(context.Context) error) run {
	return func(ctx context.Context) (found outcome, err error) {
		before, _, err := t.newest()
		if err == nil {
			err = await(ctx, 10*watchEvery, "events to flow", func() (have int, done bool, err error) {
				now, have, err := t.newest()
				return have, now >= before+liveRate/2, errors.Join(err, alive(t.leader, t.standby)())
			})
		}
		if err == nil {
			err = waitUntil(ctx, time.Now().Add(rand.N(500*time.Millisecond)))
		}
		_, from, newestErr := t.newest()
		if err = errors.Join(err, newestErr); err != nil {
			return found, err
		}
		began := time.Now().UnixNano()
		if err := loss(ctx); err != nil {
			return found, err
		}
		err = await(ctx, 10*watchEvery, "an event of the new leader", func() (have int, done bool, err error) {
			arrived, err := t.to.arrived(from)
			for _, a := range arrived {
				if i := a.n - t.rows.first; i >= 0 && t.rows.at[i].Load() > began {
					found.gap = float64(a.at-began) / 1e9
					return from, true, err
				}
			}
			from += len(arrived)
			return from, false, err
		})
		return found, err
	}
}

// newest is the newest row that has arrived, and how many messages have.
func (t *leaderChange) newest() (n int64, count int, err error) {
	arrived, err := t.to.arrived(0)
	n = t.rows.first
	for _, a := range arrived {
		n = max(n, a.n)
	}
	return n, len(arrived), err
}

// kill ends the leader without a word. The new standby is started when the old one leads: here
// nothing else competes for the machine.
func (t *leaderChange) kill(ctx context.Context) (err error) {
	if err := t.leader.Kill(); err != nil {
		return err
	}
	if err := t.standby.answers(ctx, "/readyz?role=leader", 200); err != nil {
		return err
	}
	t.leader.way.Close()
	t.leader, t.standby = t.standby, nil
	t.standby, err = t.start(ctx)
	return err
}

// cut keeps every byte back that the leader and PostgreSQL send to each other, until the standby
// leads; then the former leader stands by.
func (t *leaderChange) cut(ctx context.Context) error {
	old := t.leader
	old.way.Hold(netproxy.Up)
	old.way.Hold(netproxy.Down)
	if err := t.standby.answers(ctx, "/readyz?role=leader", 200); err != nil {
		return err
	}
	old.way.Reset() // what was kept back is gone
	old.way.Release(netproxy.Up)
	old.way.Release(netproxy.Down)
	t.leader, t.standby = t.standby, old
	if err := old.answers(ctx, "/readyz", 200); err != nil {
		return err
	}
	return old.answers(ctx, "/readyz?role=leader", 503)
}

func (c *candidate) answers(ctx context.Context, path string, want int) error {
	return await(ctx, 4*watchEvery, fmt.Sprintf("%d of %s", want, path), func() (code int, done bool, err error) {
		code, _, err = c.Get(ctx, path)
		return 0, err == nil && code == want, nil // it is asked again
	})
}
