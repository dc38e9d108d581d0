// Latency: live rows through the relay, with and without bursts of one key, and through the bare loop.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// listener is the consumer of the live rows, and how much of what it has was looked at.
type listener struct {
	*devenv.Consumer
	count int
}

func (s *stand) listen(ctx context.Context) (*listener, func() error, error) {
	q, err := s.newQueue("classic") // the consumer would take over an old one
	if err != nil {
		return nil, nil, err
	}
	c, err := devenv.StartConsumer(ctx, devenv.ConsumerOptions{URL: s.rabbit.URL(), Exchange: exchange, Queue: queueName})
	if err != nil {
		return nil, nil, errors.Join(err, q.close())
	}
	return &listener{Consumer: c}, func() error {
		c.Close()
		return q.close()
	}, nil
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
	arrived := l.Deliveries()[l.count:]
	l.count += len(arrived)
	return p.latencies(arrived, rows)
}

// bursts is what a burst of one key does to the other ones.
func (s *stand) bursts(ctx context.Context) (_ []result, err error) {
	l, end, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	relay, err := s.startLive(ctx)
	if err != nil {
		return nil, err
	}
	var p50 [2][]float64
	side := func(bursts int) side {
		return func(ctx context.Context) (float64, error) {
			took, err := l.hear(ctx, &phase{db: s.db, first: s.nextRun(), length: s.size.burst, bursts: bursts == 1})
			p50[bursts] = append(p50[bursts], median(took))
			return quantile(took, 0.99), err
		}
	}
	turns, err := s.turns(ctx, side(0), side(1), milliseconds)
	if err != nil {
		return nil, errors.Join(err, relay.Kill())
	}
	r := turns.result("cold keys at 1,000/s beside a burst of 2,000 events of one key every 5 s: their p99 ÷ without bursts", "×", milliseconds)
	r.must, r.aim = 3, 1.5
	r.note = fmt.Sprintf("p50 %s, without bursts %s", milliseconds(median(p50[1])), milliseconds(median(p50[0])))
	return []result{r}, s.stopRelay(relay)
}

// startLive starts the relay with its default connections and waits until it streams.
func (s *stand) startLive(ctx context.Context) (*devenv.Relay, error) {
	relay, err := s.startRelay(load{ordering: "key"})
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := relay.WaitReady(bounded); err != nil {
		return nil, errors.Join(err, relay.Kill())
	}
	return relay, nil
}

// live is the relay against the bare loop.
func (s *stand) live(ctx context.Context) (_ []result, err error) {
	loopDB, err := s.database(ctx, "loop", "CREATE PUBLICATION bench FOR TABLE outbox WITH (publish = 'insert')")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.pg.DropDatabase(context.WithoutCancel(ctx), "loop")) }()
	l, end, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()

	var p50 [2][]float64
	hear := func(ctx context.Context, side int, db string) (float64, error) {
		took, err := l.hear(ctx, &phase{db: db, first: s.nextRun(), length: s.size.live})
		p50[side] = append(p50[side], median(took))
		return quantile(took, 0.99), err
	}
	base := func(ctx context.Context) (float64, error) {
		loop, err := s.startLoop(ctx, loopDB)
		if err != nil {
			return 0, err
		}
		p99, err := hear(ctx, 0, loopDB)
		return p99, errors.Join(err, loop.stop())
	}
	ours := func(ctx context.Context) (float64, error) {
		relay, err := s.startLive(ctx)
		if err != nil {
			return 0, err
		}
		p99, err := hear(ctx, 1, s.db)
		return p99, errors.Join(err, s.stopRelay(relay))
	}
	turns, err := s.turns(ctx, base, ours, milliseconds)
	if err != nil {
		return nil, err
	}
	r := turns.result("live 1,000/s: relay p99 ÷ bare loop p99, commit to consumer", "×", milliseconds)
	r.must, r.aim = 1.5, 1.1
	r.note = fmt.Sprintf("p50 %s, bare loop %s", milliseconds(median(p50[1])), milliseconds(median(p50[0])))
	return []result{r}, nil
}

// starts is the time from the start of the process to its stream.
func (s *stand) starts(ctx context.Context) ([]result, error) {
	var took []float64
	for range s.size.starts {
		began := time.Now()
		relay, err := s.startRelay(load{ordering: "key"})
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		err = relay.WaitLog(bounded, `"msg":"streaming"`)
		cancel()
		if err != nil {
			return nil, errors.Join(err, relay.Kill())
		}
		at, err := loggedAt(relay.Log(), `"msg":"streaming"`)
		if err != nil {
			return nil, errors.Join(err, relay.Kill())
		}
		took = append(took, at.Sub(began).Seconds())
		if err := s.stopRelay(relay); err != nil {
			return nil, err
		}
	}
	return []result{{
		name: "start to streaming (slot exists)", ours: spread(took, milliseconds), value: 1e3 * median(took), unit: "ms",
		must: 300, aim: 100, pairs: len(took),
	}}, nil
}

// loggedAt is the time of the first log line with text.
func loggedAt(log, text string) (time.Time, error) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, text) {
			continue
		}
		_, rest, _ := strings.Cut(line, `"time":"`)
		stamp, _, _ := strings.Cut(rest, `"`)
		at, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", stamp)
		if err != nil {
			return at, fmt.Errorf("read time of log line: %w", err)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("no log line with %s", text)
}
