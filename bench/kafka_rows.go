// The rows of Kafka.
package main

import (
	"context"
	"fmt"
	"strings"
)

// rows are all rows, the ones with a must first.
func (s *kafkaStand) rows() []row {
	if s.opt.debezium {
		return s.contestRows()
	}
	rows := []row{
		{"drain-100", func(ctx context.Context) ([]result, error) {
			return s.besideBareRead(ctx, 100, bounds{0.85, 1.0}, bounds{5, 2.5})
		}},
		{"drain-1", func(ctx context.Context) ([]result, error) {
			return s.besideBareRead(ctx, 1, bounds{0.70, 0.95}, bounds{10, 5})
		}},
		{"live", func(ctx context.Context) ([]result, error) { return s.live(ctx, s.listen) }},
		{"leaders", s.leaders},
		{"memory-backlog", func(ctx context.Context) ([]result, error) { return s.memory(ctx, "1,000,000-event backlog", 100) }},
		{"memory-transaction", func(ctx context.Context) ([]result, error) {
			return s.memory(ctx, "one transaction of 1,000,000 rows", s.size.memory)
		}},
	}
	if s.opt.full || s.opt.quick || s.opt.only.String() != "" { // a table of its own
		rows = append(rows,
			s.resumeRow("retry-resume-1", "1 key", runSpec{keys: keyset{count: 1}, partitions: 12, ordering: "key"}),
			s.resumeRow("retry-resume-1000", "1,000 keys", runSpec{keys: keyset{count: 1000}, partitions: 12, ordering: "key"}),
			s.resumeRow("retry-resume-commit", "`ordering: commit`, 1 topic", runSpec{keys: keyset{count: 1000}, partitions: 1, ordering: "commit"}),
			row{"retry-snapshot", s.besideSnapshot})
		rows = append(rows, row{"leader-change", func(ctx context.Context) ([]result, error) { return s.leaderChanges(ctx, s.listen) }})
		rows = append(rows, row{"inbox", func(ctx context.Context) ([]result, error) { return s.inboxRows(ctx, s.receive, s.listen) }})
	}
	for _, rowsPerTx := range []int{1, 100, 10_000} {
		for _, payload := range []int{200, 2048} {
			for _, partitions := range []int{1, 12} {
				if payload == 200 && partitions == 12 && rowsPerTx <= 100 {
					continue // a row with a must
				}
				if s.opt.quick && !(payload == 2048 && partitions == 1 && rowsPerTx == 100) {
					continue
				}
				name := fmt.Sprintf("%s%d/%d/%d", cellPrefix, rowsPerTx, payload, partitions)
				rows = append(rows, row{name, func(ctx context.Context) ([]result, error) {
					return s.cell(ctx, runSpec{rowsPerTx: rowsPerTx, payload: payload, partitions: partitions})
				}})
			}
		}
	}
	return rows
}

// resumeRow has a topic come back under a live load.
func (s *kafkaStand) resumeRow(id, name string, l runSpec) row {
	l.events, l.rowsPerTx, l.payload = s.size.drainCell, 100, 200
	return row{id, func(ctx context.Context) ([]result, error) {
		if err := s.warmUp(ctx); err != nil {
			return nil, err
		}
		return s.resume(ctx, name, l, func(context.Context) (*returning, error) { return s.openMissing(l), nil })
	}}
}

// openMissing is a topic for a load that is not there yet.
func (s *kafkaStand) openMissing(l runSpec) *returning {
	t := s.missingTopic(l.partitions)
	return &returning{place: t, config: s.config(t.name) + "delivery:\n  ordering: " + l.ordering + "\n", make: t.make}
}

// bounds are what a row must reach and what it aims at.
type bounds struct{ must, aim float64 }

// String is the load in words.
func (l runSpec) String() string {
	tx, size, partitions := "single-row transactions", fmt.Sprintf("%d B", l.bytes()), "1 partition"
	if l.rowsPerTx > 1 {
		tx = thousands(l.rowsPerTx) + "-row transactions"
	}
	if l.bytes() >= 1<<10 {
		size = fmt.Sprintf("%d KiB", l.bytes()>>10)
	}
	if l.partitions > 1 {
		partitions = fmt.Sprintf("%d partitions", l.partitions)
	}
	return strings.Join([]string{tx, size, partitions}, ", ")
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// sized gives a load its keys and as many events as take a second or two.
func (s *kafkaStand) sized(l runSpec, events int) runSpec {
	l.keys, l.ordering, l.events = keyset{count: 1000}, "key", events
	if l.rowsPerTx == 1 {
		l.events /= 2
	}
	l.events = max(l.events, l.rowsPerTx) / l.rowsPerTx * l.rowsPerTx
	return l
}

// besideBareRead is the relay against the bare read of the slot, and the relay's own work.
func (s *kafkaStand) besideBareRead(ctx context.Context, rowsPerTx int, ratioOf, cpuOf bounds) ([]result, error) {
	if err := s.warmUp(ctx); err != nil {
		return nil, err
	}
	d := &drain{kafkaStand: s, l: s.sized(runSpec{rowsPerTx: rowsPerTx, payload: 200, partitions: 12}, s.size.drain)}
	ratio, cpu, err := d.inTurns(ctx)
	ratio.must, ratio.aim = ratioOf.must, ratioOf.aim
	cpu.must, cpu.aim = cpuOf.must, cpuOf.aim
	return []result{ratio, cpu}, err
}

// cell is a load of the matrix: once, or in turns for the full matrix.
func (s *kafkaStand) cell(ctx context.Context, l runSpec) ([]result, error) {
	if err := s.warmUp(ctx); err != nil {
		return nil, err
	}
	d := &drain{kafkaStand: s, l: s.sized(l, s.size.drainCell)}
	if s.opt.full {
		r, _, err := d.inTurns(ctx)
		r.cell = true
		return []result{r}, err
	}
	r, err := d.once(ctx)
	return []result{r}, err
}

// memory is the most memory that the relay has had resident while much waited for it.
func (s *kafkaStand) memory(ctx context.Context, name string, rowsPerTx int) ([]result, error) {
	d := &drain{kafkaStand: s, l: runSpec{keys: keyset{count: 1000}, ordering: "key", events: s.size.memory, rowsPerTx: rowsPerTx, partitions: 12}}
	if err := d.fill(ctx); err != nil {
		return nil, err
	}
	r, err := d.relay(ctx)
	return []result{{
		name: "peak RSS (VmHWM), 512 B payloads: " + name, ours: mebibytes(float64(r.peak)), value: float64(r.peak) / (1 << 20), unit: "MiB",
		must: 96, aim: 48, once: true, note: perSecond(r.rate),
	}}, err
}
