// The contest with Debezium Server: both on the same broker objects, with the same rows, in turns.
package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// contest is what both sides of the contest use on one broker.
type contest struct {
	*stand
	at     contestBroker
	events int    // of a drain in 100-row transactions; half of them in single-row ones
	rival  string // URL of Debezium's own database; "": not made yet
	// of Debezium, which keeps its place in the slot of a database there: by address of the
	// database
	dirs map[string]string
}

// contestBroker is the broker's part of a contest.
type contestBroker interface {
	// destination makes what both publish to again, with room for so many events; live: arrivals
	// are asked for.
	destination(ctx context.Context, room int, live bool) (destination, error)
	ordering() string // what a history must keep
	name() string
}

// destination is where the events of a run arrive.
type destination interface {
	place
	// after the first n, with the rows' ids
	arrivals(ctx context.Context, n int) ([]checker.Delivery, error)
	topic() string // that the Event Router names
	// the relay's, in a line of YAML
	sink() string
	// Debezium Server's, with its formats
	debezium() map[string]string
}

// outcome is what a run has shown.
type outcome struct {
	rate     float64 // events a second
	cpu      float64 // µs of processor time per event
	peak     float64 // bytes resident
	start    float64 // seconds from the start of the process to the first event
	p50, p99 float64 // seconds from COMMIT to arrival

	// of live rows, the second half alone; of a drain, from the first event on
	warmP99, warmCPU float64
}

// duel is what both have shown in turns, and Debezium with its default settings once.
type duel struct {
	base, ours []outcome
	usual      outcome
}

// duel runs Debezium and the relay so often in turns and Debezium once more, so that it can be held
// against itself. When it takes too long it ends with fewer pairs.
func (c *contest) duel(ctx context.Context, base, ours func(context.Context) (outcome, error)) (d duel, err error) {
	began := time.Now()
	for i := range c.size.duels + 1 {
		b, err := base(ctx)
		if err != nil {
			return d, fmt.Errorf("debezium: %w", err)
		}
		d.base = append(d.base, b)
		c.say("    Debezium, tuned: %s", b)
		if i > 0 && (i == c.size.duels || time.Since(began) > longestDuel) {
			break
		}
		o, err := ours(ctx)
		if err != nil {
			return d, fmt.Errorf("relay: %w", err)
		}
		d.ours = append(d.ours, o)
		c.say("    relay: %s", o)
	}
	return d, nil
}

// longestDuel is after how long no new pair begins: `make bench-debezium` ends within 25 minutes.
const longestDuel = 4 * time.Minute

func (o outcome) String() string {
	var parts []string
	for _, p := range []struct {
		value float64
		text  string
	}{
		{o.rate, perSecond(o.rate)},
		{o.p99, "p50 " + lapse(o.p50) + ", p99 " + lapse(o.p99) + " (warm " + lapse(o.warmP99) + ")"},
		{o.cpu, usedTime(o.cpu) + " CPU per event"},
		{o.warmCPU, "(warm " + usedTime(o.warmCPU) + ")"},
		{o.peak, mebibytes(o.peak)},
		{o.start, "first event after " + lapse(o.start)},
	} {
		if p.value != 0 {
			parts = append(parts, p.text)
		}
	}
	return strings.Join(parts, ", ")
}

// result is a row of the report. It is void when the relay would be on the other side of must
// against a Debezium that differs as much from this one as this one from itself.
func (d duel) result(name string, pick func(outcome) float64, show func(float64) string, must float64, higher bool) result {
	var p series
	for _, o := range d.base {
		p.base = append(p.base, pick(o))
	}
	for _, o := range d.ours {
		p.ours = append(p.ours, pick(o))
	}
	r := p.result(name, "×", show)
	r.must, r.higher, r.aimText = must, higher, "–"
	if higher {
		r.aim = math.Inf(1)
	}
	above, below := r, r
	above.value, below.value = r.value*(1+r.aa), r.value/(1+r.aa)
	r.void = r.asked() && above.reaches(must) != below.reaches(must)
	r.usual = show(pick(d.usual))
	r.note = "Debezium with its defaults " + r.usual
	return r
}

// lapse is a time from milliseconds to seconds.
func lapse(seconds float64) string {
	switch {
	case seconds >= 1:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds >= 0.01:
		return fmt.Sprintf("%.0f ms", 1e3*seconds)
	default:
		return milliseconds(seconds)
	}
}

// usedTime is processor time, of little and of much.
func usedTime(micros float64) string {
	if micros >= 100 {
		return fmt.Sprintf("%.0f µs", micros)
	}
	return fmt.Sprintf("%.1f µs", micros)
}
