// The rows of RabbitMQ.
package main

import (
	"context"
)

// rows are all rows, the ones with a must first.
func (s *rabbitStand) rows() []row {
	if s.opt.debezium {
		return s.contestRows()
	}
	rows := []row{
		{"even-key", s.evenKeys},
		{"zipf-commit", s.zipf},
		{"burst", s.bursts},
		{"live", func(ctx context.Context) ([]result, error) { return s.live(ctx, s.listen) }},
		{"memory-backlog", func(ctx context.Context) ([]result, error) { return s.memory(ctx, "1,000,000-event backlog", 100) }},
		{"memory-transaction", func(ctx context.Context) ([]result, error) {
			return s.memory(ctx, "one transaction of 1,000,000 rows", s.size.memory)
		}},
		{"start", func(ctx context.Context) ([]result, error) { return s.starts(ctx, s.config(runSpec{ordering: "key"})) }},
	}
	// tables of their own: a quarter of an hour more
	if s.opt.full || s.opt.quick || s.opt.only.String() != "" {
		rows = append(rows, s.retryTableRows()...)
		rows = append(rows, row{"retention", s.retention})
		rows = append(rows, row{"leader-change", func(ctx context.Context) ([]result, error) { return s.leaderChanges(ctx, s.listen) }})
		rows = append(rows, row{"inbox", func(ctx context.Context) ([]result, error) { return s.inboxRows(ctx, s.receive, s.listen) }})
	}
	for _, queue := range []string{"classic", "quorum"} {
		for _, far := range []bool{false, true} {
			m := &matrix{rabbitStand: s, queue: queue, far: far, rates: map[int]float64{}}
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
func (s *rabbitStand) evenKeys(ctx context.Context) ([]result, error) {
	l := runSpec{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "key", queue: "classic"}
	rate, err := s.bareRate(ctx, l)
	if err != nil {
		return nil, err
	}
	l.events = s.size.fitting(rate, l.events)
	r, err := s.compare(ctx, "1,000 even keys, `key`, 100-row transactions: relay ÷ bare publisher", l)
	r.must, r.aim, r.higher = 0.80, 0.95, true
	return []result{r}, err
}

// zipf is one lane in the order of the WAL against one connection, and what strict keys make of the
// same events.
func (s *rabbitStand) zipf(ctx context.Context) ([]result, error) {
	l := runSpec{keys: keyset{count: 1000, zipf: 1.1}, events: s.size.events, rowsPerTx: 100, ordering: "commit", queue: "classic"}
	r, err := s.compare(ctx, "Zipf 1.1 over 1,000 keys, `commit`, 100-row transactions: relay ÷ bare publisher", l)
	if err != nil {
		return nil, err
	}
	r.must, r.aim, r.higher = 0.75, 0.95, true
	l.ordering = "key"
	l.events = l.events / 4
	key, err := s.relayBacklog(ctx, l)
	if err != nil {
		return nil, err
	}
	reported := result{
		name: "the same with `key`", ours: perSecond(key.rate), base: r.base, value: key.rate / r.baseMedian, unit: "×",
		aa: r.aa, once: true, note: key.note(),
	}
	return []result{r, reported}, nil
}
