// The rows of the benchmark: what is measured, how much of it, and what it must reach.
package main

import (
	"context"
	"fmt"
	"time"
)

// row is one thing that -only can select.
type row struct {
	name    string
	measure func(context.Context) ([]result, error)
}

// sizes is how much a run does.
type sizes struct {
	events  int           // of a throughput run in a must row
	cell    int           // of one in a cell, at most
	pairs   int           // alternating pairs of a must row
	tries   int           // of a row whose A/A is too large
	burst   time.Duration // a phase with or without bursts
	live    time.Duration // a phase of relay or bare loop
	memory  int           // events of the rows about memory
	starts  int
	windows int // bare runs for each number of connections when the best is chosen
}

func (o options) sizes() sizes {
	switch {
	case o.quick:
		return sizes{events: 4000, cell: 2000, pairs: 1, tries: 1, burst: 1200 * time.Millisecond, live: time.Second, memory: 20_000, starts: 1, windows: 1}
	case o.full:
		return sizes{events: 200_000, cell: 60_000, pairs: 9, tries: 4, burst: 30 * time.Second, live: 20 * time.Second, memory: 1_000_000, starts: 21, windows: 3}
	default:
		return sizes{events: 80_000, cell: 20_000, pairs: 5, tries: 2, burst: 10 * time.Second, live: 6 * time.Second, memory: 1_000_000, starts: 11, windows: 2}
	}
}

// fitting is at most n events, fewer on a machine on which they would last longer than some seconds.
func (z sizes) fitting(rate float64, n int) int {
	return min(n, max(2*z.cell, int(3*rate)/100*100))
}

// maxAA is the largest difference of the baseline from itself that a row's numbers may be read beside.
const maxAA = 0.10

// `make bench` ends within 25 minutes, on whatever machine: after lastRepeat a void row stays void, and after lastCell the
// cells that are left are named in the report and not measured.
const (
	lastRepeat = 14 * time.Minute
	lastCell   = 23 * time.Minute
)

// rows are all rows, the ones with a must first.
func (s *stand) rows() []row {
	rows := []row{
		{"even-key", s.evenKeys},
		{"zipf-commit", s.zipf},
		{"burst", s.bursts},
		{"live", s.live},
		{"memory-backlog", func(ctx context.Context) ([]result, error) { return s.memory(ctx, "1,000,000-event backlog", 100) }},
		{"memory-transaction", func(ctx context.Context) ([]result, error) {
			return s.memory(ctx, "one transaction of 1,000,000 rows", s.size.memory)
		}},
		{"allocations", s.allocations},
		{"start", s.starts},
	}
	for _, queue := range []string{"classic", "quorum"} {
		for _, far := range []bool{false, true} {
			m := &matrix{stand: s, queue: queue, far: far}
			for _, k := range []keyset{{count: 1}, {count: 10}, {count: 1000}, {count: 1000, zipf: 1.1}} {
				for _, ordering := range []string{"key", "pipelined", "commit"} {
					if s.opt.quick && !(k.count == 10 && ordering == "pipelined" && far == (queue == "quorum")) {
						continue
					}
					rows = append(rows, row{m.name(k, ordering), func(ctx context.Context) ([]result, error) {
						return m.cell(ctx, k, ordering)
					}})
				}
			}
		}
	}
	return rows
}

// evenKeys is the relay against the bare publisher where its order costs nothing.
func (s *stand) evenKeys(ctx context.Context) ([]result, error) {
	l := load{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "key", queue: "classic"}
	best, rates, err := s.bestConnections(ctx, l, s.size.windows)
	if err != nil {
		return nil, err
	}
	l.connections, l.events = best, s.size.fitting(rates[best], l.events)
	r, err := s.compare(ctx, fmt.Sprintf("1,000 even keys, `key`, 100-row transactions, %d connections: relay ÷ bare publisher", best), l)
	r.must, r.aim, r.higher = 0.80, 0.95, true
	return []result{r}, err
}

// zipf is one lane in the order of the WAL against one connection, and what strict keys make of the same events.
func (s *stand) zipf(ctx context.Context) ([]result, error) {
	l := load{keys: keyset{count: 1000, zipf: 1.1}, events: s.size.events, rowsPerTx: 100, ordering: "commit", queue: "classic", connections: 1}
	r, err := s.compare(ctx, "Zipf 1.1 over 1,000 keys, `commit`, 100-row transactions: relay ÷ bare publisher on 1 connection", l)
	if err != nil {
		return nil, err
	}
	r.must, r.aim, r.higher = 0.75, 0.95, true
	l.ordering = "key"
	l.events = l.events / 4
	key, err := s.relayRun(ctx, l)
	if err != nil {
		return nil, err
	}
	reported := result{
		name: "the same with `key`", ours: perSecond(key.rate), base: r.base, value: key.rate / r.baseMedian, unit: "×",
		aa: r.aa, once: true, note: key.note(),
	}
	return []result{r, reported}, nil
}
