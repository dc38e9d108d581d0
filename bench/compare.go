// Two builds of the relay in turns on the same servers: the one of an earlier commit, and the
// checkout's.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// versions are the relay of an earlier commit and that of the checkout. A round is a run of the
// earlier relay, of the new one, and of the earlier one again. The two runs of the same build are
// the round's A/A pair. The new one stands in their middle, so that a machine which gets slower
// favors neither. Each run has a database, a slot and a queue or topic of its own, which are gone
// afterwards: no run finds what another one has left.
type versions struct {
	*stand
	at            comparedBroker
	earlier, ours string // binaries
}

// comparedBroker is the broker's part of a comparison.
type comparedBroker interface {
	backlog() int // events of a drain in 100-row transactions; half of them in single-row ones
	// place makes a queue or topic, with the relay's configuration for it.
	place(ctx context.Context, l runSpec) (_ place, config string, err error)
	// bare is the events per second of the baseline, on a database of its own.
	bare(ctx context.Context, l runSpec) (float64, error)
	listen(ctx context.Context) (*listener, error)
}

func (s *rabbitStand) backlog() int { return s.size.events }
func (s *kafkaStand) backlog() int  { return s.size.drainCell }

func (s *rabbitStand) place(_ context.Context, l runSpec) (place, string, error) {
	q, err := s.newQueue("classic")
	return q, s.config(l), err
}

func (s *rabbitStand) bare(ctx context.Context, l runSpec) (float64, error) {
	l.queue = "classic"
	r, err := s.bareRun(ctx, l)
	return r.rate, err
}

func (s *kafkaStand) place(ctx context.Context, l runSpec) (place, string, error) {
	t, err := s.newTopic(ctx, l.partitions)
	if err != nil {
		return nil, "", err
	}
	return t, s.config(t.name), nil
}

// bare is the best of the ways in which the bare reader can read.
func (s *kafkaStand) bare(ctx context.Context, l runSpec) (best float64, err error) {
	if err := execSQL(ctx, s.db, loopSQL, "SELECT pg_create_logical_replication_slot('"+bareSlot+"', 'pgoutput')"); err != nil {
		return 0, err
	}
	if _, err := s.fill(ctx, l); err != nil {
		return 0, err
	}
	for _, pause := range coalescePauses {
		r, err := s.readSlot(ctx, l.events, pause)
		if err != nil {
			return 0, err
		}
		best = max(best, r.rate)
	}
	return best, nil
}

// comparedRow is what both builds do in turns.
type comparedRow struct {
	name    string
	figures []figure
	run     func(ctx context.Context) (outcome, error)
	// nil: nothing does the same without the relay
	bare func(ctx context.Context) (outcome, error)
}

// comparedRows are the rows of c that o selects by broker/name.
func (o options) comparedRows(c *versions) []comparedRow {
	drain := func(rowsPerTx int) comparedRow {
		load := func() runSpec {
			l := runSpec{keys: keyset{count: 1000}, rowsPerTx: rowsPerTx, events: c.at.backlog(), ordering: "key", partitions: 12}
			if rowsPerTx == 1 {
				l.events /= 2
			}
			return l
		}
		return comparedRow{
			name: fmt.Sprintf("drain-%d", rowsPerTx), figures: drainFigures,
			run: func(ctx context.Context) (outcome, error) { return c.drain(ctx, load()) },
			bare: func(ctx context.Context) (found outcome, err error) {
				found.rate, err = c.at.bare(ctx, load())
				return found, err
			},
		}
	}
	first := runSpec{keys: keyset{count: 1}, rowsPerTx: 1, events: 1, ordering: "key", partitions: 1}
	rows := []comparedRow{
		{name: "start", figures: startFigures, run: func(ctx context.Context) (outcome, error) { return c.drain(ctx, first) }},
		{name: "live", figures: liveFigures, run: c.hearRelay, bare: c.hearLoop},
		drain(100),
		drain(1),
	}
	return slices.DeleteFunc(rows, func(r comparedRow) bool { return !o.only.MatchString(o.sink + "/" + r.name) })
}

// selectsNothing is an error unless -only selects rows of another broker.
func (o options) selectsNothing() error {
	for o.sink = range brokers {
		if len(o.comparedRows(&versions{})) > 0 {
			return nil
		}
	}
	return fmt.Errorf("-only %q selects none of start, live, drain-100, drain-1 of rabbitmq/ and kafka/", o.only)
}

// measure runs the rounds of a row. The bare baseline comes before all of them, so that each relay
// follows another one.
func (c *versions) measure(ctx context.Context, r comparedRow) (compared, error) {
	found := compared{row: r}
	var failed error
	one := func(name, binary string, run func(context.Context) (outcome, error)) (o outcome) {
		if failed != nil || run == nil {
			return o
		}
		c.binary = binary
		failed = c.onFreshDatabase(ctx, func() (err error) {
			o, err = run(ctx)
			return err
		})
		if failed != nil {
			failed = fmt.Errorf("%s: %w", name, failed)
		}
		return o
	}
	bare := make([]outcome, c.size.pairs)
	for i := range bare {
		bare[i] = one("bare baseline", "", r.bare)
	}
	one("new relay, to warm up", c.ours, r.run)
	one("earlier relay, to warm up", c.earlier, r.run)
	for i := range c.size.pairs {
		next := round{
			bare:    bare[i],
			earlier: one("earlier relay", c.earlier, r.run),
			ours:    one("new relay", c.ours, r.run),
			again:   one("earlier relay", c.earlier, r.run),
		}
		if failed != nil {
			return found, failed
		}
		c.say("    earlier %s\n            new     %s\n            earlier %s", next.earlier, next.ours, next.again)
		found.rounds = append(found.rounds, next)
	}
	return found, nil
}

// onFreshDatabase has do use a database that nobody has used, and drops it with its slots.
func (c *versions) onFreshDatabase(ctx context.Context, do func() error) (err error) {
	const name = "compared"
	usual := c.db
	if c.db, err = c.database(ctx, name, fillSQL); err != nil {
		return err
	}
	defer func() {
		c.db = usual
		err = errors.Join(err, c.pg.DropDatabase(context.WithoutCancel(ctx), name))
	}()
	return do()
}

// drain has the relay publish rows that wait for it.
func (c *versions) drain(ctx context.Context, l runSpec) (found outcome, err error) {
	to, config, err := c.at.place(ctx, l)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	// the table is empty; older versions have no flag to say that it may be backfilled or not
	if err := c.runInit(ctx, config); err != nil {
		return found, err
	}
	first, err := c.fill(ctx, l)
	if err == nil {
		err = execSQL(ctx, c.db, "CHECKPOINT") // none comes within
	}
	if err != nil {
		return found, err
	}
	began := time.Now()
	err = c.withRelay(config, func(relay *runner.Relay) (err error) {
		if found, err = follow(ctx, to, l.events, relay, began); err == nil {
			found.peak, err = peakRSS(relay.Pid())
		}
		return err
	})
	if err != nil {
		return found, err
	}
	h, err := c.readTable(ctx, first, l)
	if err != nil {
		return found, err
	}
	h.anyShape = c.binary == c.earlier
	return found, to.check(ctx, h)
}

// hearRelay is live rows through the relay: what an event costs once it has streamed for a second,
// and how long it takes.
func (c *versions) hearRelay(ctx context.Context) (found outcome, err error) {
	l, err := c.at.listen(ctx)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	if err := c.runInit(ctx, l.config); err != nil {
		return found, err
	}
	return found, c.withRelay(l.config, func(relay *runner.Relay) (err error) {
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := relay.WaitLog(bounded, `"msg":"streaming"`); err != nil {
			return err
		}
		if _, err = l.hear(ctx, c.phase(c.db, settling)); err != nil {
			return err
		}
		before, err := cpuTime(relay.Pid())
		if err != nil {
			return err
		}
		p := c.phase(c.db, c.size.live)
		if found, err = hearPhase(ctx, l, p); err != nil {
			return err
		}
		after, err := cpuTime(relay.Pid())
		found.warmCPU = float64((after - before).Microseconds()) / float64(len(p.at))
		return err
	})
}

// hearLoop is the same rows through the bare loop.
func (c *versions) hearLoop(ctx context.Context) (found outcome, err error) {
	l, err := c.at.listen(ctx)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	if err := execSQL(ctx, c.db, loopSQL); err != nil {
		return found, err
	}
	loop, err := startLoop(ctx, c.db, l.dial)
	if err != nil {
		return found, err
	}
	if _, err = l.hear(ctx, c.phase(c.db, settling)); err == nil {
		found, err = hearPhase(ctx, l, c.phase(c.db, c.size.live))
	}
	return found, errors.Join(err, loop.stop())
}

func hearPhase(ctx context.Context, l *listener, p *phase) (outcome, error) {
	took, err := l.hear(ctx, p)
	return outcome{p50: median(took), p99: quantile(took, 0.99)}, err
}

func (c *versions) phase(db string, length time.Duration) *phase {
	return &phase{db: db, first: c.nextRun(), rate: liveRate, length: length}
}
