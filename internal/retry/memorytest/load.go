// What a new leader asks: Regroup and Exchanges; and Reclaim, which has nothing to do.

package memorytest

import (
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Regroup implements Store.
func (m *Store) Regroup(ctx context.Context) (highest event.Position, err error) {
	end, err := m.begin(ctx)
	if err != nil {
		return highest, err
	}
	defer end()
	for _, e := range m.db.list(m.ours) {
		if e.incarnation == m.c.Incarnation {
			highest = e.position
		}
		if e.state == "" || e.state == Open {
			e.row.Group, e.row.Ordered = m.c.Scope.Group(&e.row.Event, e.row.ExchangeOrTopic)
		}
	}
	return highest, nil
}

// Exchanges implements Store.
func (m *Store) Exchanges(ctx context.Context) (list []uint64, err error) {
	end, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, e := range m.db.list(func(e *kept) bool { return m.deferred(e) || m.blocks(e) }) {
		list = append(list, e.row.ExchangeOrTopic)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Missing implements Store.
func (m *Store) Missing(ctx context.Context) (list []store.Missing, err error) {
	end, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	seen := map[uint64]bool{}
	for _, e := range m.db.list(m.deferred) {
		if r := e.row; r.Reason == sink.NoExchange && !seen[r.ExchangeOrTopic] {
			seen[r.ExchangeOrTopic] = true
			list = append(list, store.Missing{ExchangeOrTopic: r.ExchangeOrTopic, Destination: r.Destination, Text: r.Text})
		}
	}
	return list, nil
}

// Reclaim implements Store.
func (m *Store) Reclaim(ctx context.Context) (store.Reclaimed, error) {
	end, err := m.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	return store.Kept, nil
}
