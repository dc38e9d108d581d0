// The contest's live rows: latency, and what an event costs, while rows come at a steady rate.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// rivalSQL makes what Debezium needs in its database.
const rivalSQL = loopSQL

// live is live rows through both, in a database each: what one publishes waits in no slot of the
// other.
func (c *contest) live(ctx context.Context) (_ []result, err error) {
	rival, err := c.rivalDatabase(ctx)
	if err != nil {
		return nil, err
	}
	usual, err := c.hear(ctx, c.debezium(nil), rival)
	if err != nil {
		return nil, fmt.Errorf("debezium: %w", err)
	}
	c.say("    Debezium, default: %s", usual)
	d, err := c.duel(ctx, func(ctx context.Context) (outcome, error) { return c.hear(ctx, c.debezium(tuned), rival) },
		func(ctx context.Context) (outcome, error) { return c.hear(ctx, c.ours, c.db) })
	if err != nil {
		return nil, err
	}
	d.usual = usual
	name := fmt.Sprintf("%s, live %s/s for %s", c.at.name(), thousands(liveRate), c.size.contest)
	half := fmt.Sprintf("; the last %s of it", c.size.contest/2)
	p99 := d.result(name+": p99, commit to consumer", outcome.getP99, lapse, 0.1, false)
	p99.note = "p50 " + d.result("", outcome.getP50, lapse, 0, false).beside() + "; " + p99.note
	warm := d.result(name+half+": p99, commit to consumer", outcome.getWarmP99, lapse, 0, false)
	cpu := d.result(name+": CPU per event, the start of the process included", outcome.getCPU, usedTime, 0.15, false)
	warmCPU := d.result(name+half+": CPU per event", outcome.getWarmCPU, usedTime, 0, false)
	p99.short = fmt.Sprintf("p99 from COMMIT to the consumer, %s live rows/s, first %s", thousands(liveRate), c.size.contest)
	warm.short = fmt.Sprintf("p99 of the last %s of these", c.size.contest/2)
	cpu.short = fmt.Sprintf("CPU time per live event, first %s", c.size.contest)
	warmCPU.short = fmt.Sprintf("CPU time per live event, last %s", c.size.contest/2)
	return []result{p99, warm, cpu, warmCPU}, nil
}

func (o outcome) getP50() float64     { return o.p50 }
func (o outcome) getP99() float64     { return o.p99 }
func (o outcome) getWarmP99() float64 { return o.warmP99 }
func (o outcome) getWarmCPU() float64 { return o.warmCPU }

// beside is both numbers in one line.
func (r result) beside() string { return middle(r.ours) + ", Debezium " + middle(r.base) }

// rivalDatabase is Debezium's, made when it is first asked for.
func (c *contest) rivalDatabase(ctx context.Context) (string, error) {
	if c.rival != "" {
		return c.rival, nil
	}
	db, err := c.database(ctx, "rival", rivalSQL)
	if err == nil {
		c.rival = db
	}
	return db, err
}

// hear has a side publish live rows from its start on.
func (c *contest) hear(ctx context.Context, start launch, db string) (_ outcome, err error) {
	if err := execSQL(ctx, db, "TRUNCATE outbox"); err != nil {
		return outcome{}, err
	}
	to, err := c.at.destination(ctx, 0, true)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	r, err := c.startStreaming(ctx, start, db, to)
	if err != nil {
		return outcome{}, err
	}
	found, err := c.heard(ctx, r, db, to)
	if err != nil {
		return outcome{}, r.failed(err)
	}
	return found, r.stop(ctx)
}

// startStreaming starts a side and waits until it streams.
func (c *contest) startStreaming(ctx context.Context, start launch, db string, to destination) (*contender, error) {
	r, err := start(db, to)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, javaPatience)
	defer cancel()
	if err := r.streams(bounded); err != nil { // with the end of its log
		return nil, errors.Join(err, r.Kill())
	}
	return r, nil
}

// heard is the phase: all of it, and its second half, in which Java has compiled what Debezium
// does.
func (c *contest) heard(ctx context.Context, r *contender, db string, to destination) (outcome, error) {
	p := c.phase(db, c.size.contest)
	written := make(chan error, 1)
	go func() {
		_, err := p.run(ctx)
		written <- err
	}()
	err := waitUntil(ctx, time.Now().Add(c.size.contest/2))
	before, cpuErr := cpuTime(r.Pid())
	if err = errors.Join(err, cpuErr, <-written); err != nil {
		return outcome{}, err
	}
	rows := len(p.at)
	if _, err := watchFor(ctx, javaPatience, to, rows, alive(r)); err != nil {
		return outcome{}, err
	}
	after, err := cpuTime(r.Pid())
	if err != nil {
		return outcome{}, err
	}
	arrived, err := to.arrivals(ctx, 0)
	if err != nil {
		return outcome{}, err
	}
	all, err := p.latencies(arrived, rows)
	if err != nil {
		return outcome{}, err
	}
	warm, err := p.latenciesFrom(arrived, rows, rows/2)
	return outcome{
		p50: median(all), p99: quantile(all, 0.99), cpu: float64(after.Microseconds()) / float64(rows),
		warmP99: quantile(warm, 0.99), warmCPU: float64((after - before).Microseconds()) / float64(rows/2),
	}, err
}

func (c *contest) phase(db string, length time.Duration) *phase {
	return &phase{db: db, first: c.nextRun(), rate: liveRate, length: length, payload: contestPayload}
}
