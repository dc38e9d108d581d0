// Throughput on Kafka: the bare read of the slot and the relay, on the same rows.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// drain is a load that both sides get through: it waits in the slots of both.
type drain struct {
	*kafkaStand
	l     runSpec
	pause time.Duration // of the bare reader; 0: it reads at once
	best  float64       // its rate when that was chosen

	first   int64 // id of the first of the rows that were committed last
	waiting bool  // the relay has not had them
}

// coalescePauses are the ways in which the bare reader can read, of which the best counts.
var coalescePauses = []time.Duration{0, 200 * time.Microsecond, time.Millisecond}

// way is how the bare reader reads.
func (d *drain) way() string {
	if d.pause == 0 {
		return "at once"
	}
	return fmt.Sprintf("in coalesced reads, pause %s", d.pause)
}

// fill commits the rows.
func (d *drain) fill(ctx context.Context) (err error) {
	if err := d.freshWAL(ctx); err != nil {
		return err
	}
	d.first, err = d.kafkaStand.fill(ctx, d.l)
	d.waiting = err == nil
	return err
}

// choose commits the rows and finds the bare reader's best way.
func (d *drain) choose(ctx context.Context) error {
	if err := d.fill(ctx); err != nil {
		return err
	}
	var best time.Duration
	for _, d.pause = range coalescePauses {
		for range d.size.windows {
			r, err := d.read(ctx)
			if err != nil {
				return err
			}
			d.say("    bare read %s: %s", d.way(), perSecond(r.rate))
			if r.rate > d.best {
				d.best, best = r.rate, d.pause
			}
		}
	}
	d.pause = best
	return nil
}

// read is a run of the bare reader.
func (d *drain) read(ctx context.Context) (ran, error) { return d.readSlot(ctx, d.l.events, d.pause) }

// relay is a run of the relay on rows that wait for it.
func (d *drain) relay(ctx context.Context) (_ ran, err error) {
	t, err := d.newTopic(ctx, d.l.partitions)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	d.waiting = false
	return d.relayRun(ctx, d.l, d.first, d.config(t.name), t)
}

// inTurns has the two take turns. Its results are the ratio and what the relay's work costs.
func (d *drain) inTurns(ctx context.Context) (ratio, cpu result, err error) {
	if err := d.choose(ctx); err != nil {
		return ratio, cpu, err
	}
	var base, ours sum
	var micros []float64
	reads, series := 0, d.size.pairs+1
	p, err := d.turns(ctx, d.size.pairs, func(ctx context.Context) (float64, error) {
		// The last read of a series is of rows that the relay has had: others would be left for the
		// next row of the bench.
		if reads++; !d.waiting && reads%series != 0 {
			if err := d.fill(ctx); err != nil {
				return 0, err
			}
		}
		r, err := d.read(ctx)
		base.add(r)
		return r.rate, err
	}, func(ctx context.Context) (float64, error) {
		r, err := d.relay(ctx)
		ours.add(r)
		micros = append(micros, float64(r.cost.publisher)/1e3)
		return r.rate, err
	}, perSecond)
	if err != nil {
		return ratio, cpu, err
	}
	micros = micros[len(micros)-len(p.ours):] // of the series that counts
	ratio = p.result(d.l.String()+": relay ÷ bare read of the slot, "+d.way(), "×", perSecond)
	ratio.higher = true
	ratio.note = fmt.Sprintf("%d events; %s; %s", d.l.events, ours.mean().note(), base.mean().cost.read())
	cpu = result{
		name: "CPU of the relay per event, user and system, start included: " + d.l.String(), ours: spread(micros, microseconds),
		value: median(micros), unit: "µs", pairs: len(micros),
	}
	return ratio, cpu, nil
}

// once is the better of some bare reads and one run of the relay.
func (d *drain) once(ctx context.Context) (result, error) {
	if err := d.choose(ctx); err != nil {
		return result{}, err
	}
	r, err := d.relay(ctx)
	return result{
		name: d.l.String(), ours: perSecond(r.rate), base: perSecond(d.best) + " " + d.way(), value: r.rate / d.best, unit: "×",
		once: true, cell: true, note: r.note(),
	}, err
}

// warmUp lets the broker compile what it does.
func (s *kafkaStand) warmUp(ctx context.Context) error {
	if s.warm || s.opt.quick {
		return nil
	}
	s.warm = true
	d := &drain{kafkaStand: s, l: runSpec{keys: keyset{count: 1000}, events: s.size.drain, rowsPerTx: 100, payload: 200, partitions: 12, ordering: "key"}}
	if err := d.fill(ctx); err != nil {
		return err
	}
	r, err := d.relay(ctx)
	s.say("    to warm the broker up: %s", perSecond(r.rate))
	return err
}
