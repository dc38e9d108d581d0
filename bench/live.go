// Latency: live rows through the relay and through the bare loop.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const liveRate = 1000 // rows a second

// listener is the consumer of the live rows, and how much of what it has was looked at.
type listener struct {
	consumers.Witness
	count  int
	config string                  // of the relay whose events it gets
	dial   func() (publish, error) // connects a bare loop that publishes there
	remove func() error            // the queue or topic
}

func (l *listener) end() error {
	l.Close()
	return l.remove()
}

// hear runs a phase and returns its latencies in seconds.
func (l *listener) hear(ctx context.Context, p *phase) ([]float64, error) {
	rows, err := p.run(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.WaitCount(bounded, l.count+rows); err != nil {
		return nil, err
	}
	arrived := l.DeliveriesFrom(l.count)
	l.count += len(arrived)
	return p.latencies(arrived, rows)
}

// startLive starts the relay and waits until it streams.
func (s *stand) startLive(ctx context.Context, config string) (*runner.Relay, error) {
	relay, err := s.startRelay(config)
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, relay); err != nil {
		return nil, errors.Join(err, relay.Kill())
	}
	return relay, nil
}

// loopSQL makes what the bare loop needs in its database.
const loopSQL = "CREATE PUBLICATION bench FOR TABLE outbox WITH (publish = 'insert')"

// live has the bare loop and the relay take turns.
func (s *stand) live(ctx context.Context, listen func(context.Context) (*listener, error)) (_ []result, err error) {
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	loopDB, err := s.database(ctx, "loop", loopSQL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.pg.DropDatabase(context.WithoutCancel(ctx), "loop")) }()
	var p50 [2][]float64
	var written []float64
	hear := func(ctx context.Context, side int, db string) (float64, error) {
		p := &phase{db: db, first: s.nextRun(), rate: liveRate, length: s.size.live}
		took, err := l.hear(ctx, p)
		p50[side] = append(p50[side], median(took))
		written = append(written, p.written())
		return quantile(took, 0.99), err
	}
	base := func(ctx context.Context) (float64, error) {
		loop, err := startLoop(ctx, loopDB, l.dial)
		if err != nil {
			return 0, err
		}
		p99, err := hear(ctx, 0, loopDB)
		return p99, errors.Join(err, loop.stop())
	}
	ours := func(ctx context.Context) (float64, error) {
		var p99 float64
		err := s.withRelay(l.config, func(relay *runner.Relay) (err error) {
			if err = ready(ctx, relay); err == nil {
				p99, err = hear(ctx, 1, s.db)
			}
			return err
		})
		return p99, err
	}
	turns, err := s.turns(ctx, s.size.tails, base, ours, milliseconds)
	if err != nil {
		return nil, err
	}
	r := turns.result(fmt.Sprintf("live %s/s: relay p99 ÷ bare loop p99, commit to consumer", thousands(liveRate)), "×", milliseconds)
	r.must, r.aim = 1.5, 1.1
	r.note = fmt.Sprintf("p50 %s, bare loop %s; committed at %s", milliseconds(median(p50[1])), milliseconds(median(p50[0])), perSecond(median(written)))
	return []result{r}, nil
}

// startWork runs a workload until end is called, which waits for it. Later calls of end return the
// same.
func startWork(ctx context.Context, work *load.Workload) (end func() error) {
	working, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- work.Run(working) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// checkLive waits until everything of a workload that has ended has arrived, stops the relays and
// compares the arrivals with the table. Nothing may be lost or out of order; it returns how many
// events came twice.
func (s *stand) checkLive(ctx context.Context, work *load.Workload, consumer consumers.Witness, relays ...*runner.Relay) (duplicates, rows int, err error) {
	committed, err := load.ReadCommitted(ctx, s.db)
	if err != nil {
		return 0, 0, err
	}
	var ids []string
	for _, r := range committed {
		ids = append(ids, r.ID)
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := errors.Join(consumer.WaitIDs(bounded, ids), consumer.Drain(bounded)); err != nil {
		return 0, 0, err
	}
	for _, r := range relays {
		if err := s.stopRelay(r); err != nil {
			return 0, 0, err
		}
	}
	consumer.Close()
	v := checker.Check(checker.History{
		Committed: committed, RolledBack: work.RolledBack(), Deliveries: consumer.Deliveries(), MaxDuplicates: -1,
	})
	if err := v.Err(); err != nil {
		return 0, 0, fmt.Errorf("history: %w", err)
	}
	return v.Duplicates, v.Committed, nil
}
