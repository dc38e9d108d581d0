// The matrix of RabbitMQ: keys × ordering × round trip × kind of queue.
package main

import (
	"context"
	"fmt"
)

// matrix is the cells of one way to the broker and one kind of queue, which share their baseline.
type matrix struct {
	*rabbitStand
	queue string
	far   bool

	rates map[int]float64 // of the bare publisher by connections, once it is measured
}

func (m *matrix) trip() string {
	if m.far {
		return "2ms"
	}
	return "0ms"
}

func (m *matrix) name(k keyset, ordering string) string {
	return fmt.Sprintf(cellPrefix+"%s/%s/%s/%s", m.queue, m.trip(), k, ordering)
}

// cell is one cell: once, or in turns for the full matrix.
func (m *matrix) cell(ctx context.Context, k keyset, ordering string) ([]result, error) {
	l := runSpec{keys: k, events: m.size.cell, rowsPerTx: 100, queue: m.queue, far: m.far, ordering: ordering}
	events := m.enough(k, ordering)
	name := fmt.Sprintf("%s, +%s, %s, `%s`", m.queue, m.trip(), k, ordering)
	if m.opt.full {
		l.events = events
		r, err := m.compare(ctx, name, l)
		r.cell = true
		return []result{r}, err
	}
	if m.rates[l.connections()] == 0 {
		rate, err := m.bareRate(ctx, l)
		if err != nil {
			return nil, err
		}
		m.rates[l.connections()] = rate
	}
	base := m.rates[l.connections()]
	l.events = events
	found, err := m.relayBacklog(ctx, l)
	if err != nil {
		return nil, err
	}
	return []result{{
		name: name, ours: perSecond(found.rate), base: perSecond(base), baseMedian: base, value: found.rate / base, unit: "×",
		once: true, cell: true, note: found.note(),
	}}, nil
}

// enough is how many events a cell needs to last a second or two: strict keys go at one event of a
// key per round trip.
func (m *matrix) enough(k keyset, ordering string) int {
	if ordering != "key" {
		return m.size.cell
	}
	perKey := 3000 // events of one key in a second or so
	if m.far || m.queue == "quorum" {
		perKey = 500
	}
	switch {
	case k.zipf > 0:
		return min(m.size.cell, 5*perKey) // about a fifth of the events have the first key
	default:
		return min(m.size.cell, k.count*perKey)
	}
}
