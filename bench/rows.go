// The rows of the benchmark: what is measured, how much of it, and what it must reach.
package main

import (
	"cmp"
	"context"
	"time"
)

// row is one thing that -only can select.
type row struct {
	name    string
	measure func(context.Context) ([]result, error)
}

// sizes is how much a run does.
type sizes struct {
	events int // of a throughput run in a must row
	cell   int // of one in a cell, at most
	// the same on Kafka, which is so much faster; half of them in single-row transactions
	drain     int
	drainCell int
	pairs     int // alternating pairs of a must row
	// the same of one that differs more from run to run: a p99
	tails    int
	tries    int           // of a row whose A/A is too large
	burst    time.Duration // a phase with or without bursts
	live     time.Duration // a phase of relay or bare loop
	memory   int           // events of the rows about memory, and rows of a full retry table
	deferred int           // events that are drained
	starts   int
	moves    int // of a leader, as a command
	faults   int // of each other kind that a leader can have
	kills    int // of a relay that leads
	duels    int // pairs of Debezium and the relay

	drainRabbit, drainKafka int           // events of their drains
	contest                 time.Duration // a phase of live rows
	unbound                 time.Duration // without a binding
	quiet                   time.Duration // after which nothing more is awaited that was lost

	windows int // bare runs of which the best counts

	pause   time.Duration // of a destination
	drained int           // deferred events that are drained beside a snapshot
	waiting int           // deferred rows that a new leader finds

	retained time.Duration // a turn with or without retention

	inboxes  int // pairs of an inbox and a consumer without one
	received int // messages that they find waiting
}

// sizes are those of the kind of run, some of which the command line can replace.
func (o options) sizes() sizes {
	z := o.usualSizes()
	z.pause, z.retained = cmp.Or(o.pause, z.pause), cmp.Or(o.retained, z.retained)
	z.drained, z.waiting = cmp.Or(o.deferred, z.drained), cmp.Or(o.deferred, z.waiting)
	return z
}

func (o options) usualSizes() sizes {
	switch {
	case o.quick:
		return sizes{
			events: 4000, cell: 2000, drain: 4000, drainCell: 4000, pairs: 1, tails: 1, tries: 1, burst: 1200 * time.Millisecond, live: time.Second, memory: 20_000, deferred: 2000, starts: 1, moves: 2, faults: 1, kills: 1, windows: 1,
			duels: 1, drainRabbit: 4000, drainKafka: 4000, contest: 2 * time.Second, unbound: 2 * time.Second, quiet: 2 * time.Second,
			pause: time.Second, drained: 2000, waiting: 20_000, retained: 12 * time.Second,
			inboxes: 1, received: 1000,
		}
	case o.full:
		return sizes{
			events: 200_000, cell: 60_000, drain: 600_000, drainCell: 300_000, pairs: 9, tails: 15, tries: 4, burst: 30 * time.Second, live: 20 * time.Second, memory: 1_000_000, deferred: 100_000, starts: 21, moves: 31, faults: 7, kills: 21, windows: 3,
			duels: 9, drainRabbit: 150_000, drainKafka: 400_000, contest: 20 * time.Second, unbound: 6 * time.Second, quiet: 5 * time.Second,
			pause: 30 * time.Second, drained: 1_000_000, waiting: 10_000_000, retained: time.Minute,
			inboxes: 5, received: 20_000,
		}
	default:
		return sizes{
			events: 80_000, cell: 20_000, drain: 1_000_000, drainCell: 200_000, pairs: 5, tails: 11, tries: 2, burst: 10 * time.Second, live: 6 * time.Second, memory: 1_000_000, deferred: 100_000, starts: 11, moves: 31, faults: 3, kills: 11, windows: 2,
			duels: 5, drainRabbit: 150_000, drainKafka: 400_000, contest: 20 * time.Second, unbound: 6 * time.Second, quiet: 5 * time.Second,
			pause: 30 * time.Second, drained: 1_000_000, waiting: 10_000_000, retained: time.Minute,
			inboxes: 5, received: 20_000,
		}
	}
}

// fitting is at most n events, fewer on a machine on which they would last longer than some
// seconds.
func (z sizes) fitting(rate float64, n int) int {
	return min(n, max(2*z.cell, int(3*rate)/100*100))
}

// cellPrefix begins the names of the rows that are cells of a matrix.
const cellPrefix = "cell/"

// maxAA is the largest difference of the baseline from itself that a row's numbers may be read
// beside.
const maxAA = 0.10

// `make bench` ends within 25 minutes, on whatever machine: after lastRepeat a void row stays void,
// and after lastCell the cells that are left are named in the report and not measured.
const (
	lastRepeat = 14 * time.Minute
	lastCell   = 23 * time.Minute
)
