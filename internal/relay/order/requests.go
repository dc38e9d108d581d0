// Operators' requests about rows: they are carried out while their ordering group is at rest.

package order

import (
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// requested takes an operator's request about a row. The row may be in flight: if it left the table
// now, it would be delivered or written once more. So the group comes to rest first.
func (m *Machine) requested(f *Found) {
	if m.stop { // the request is read again by the next leader
		m.out.Finish = append(m.out.Finish, Result{Request: f.Request, Returned: true})
		return
	}
	g := m.group(f.Group, f.ExchangeOrTopic)
	g.requests = append(g.requests, f.Request)
	m.notNow(g)
	m.touch(g)
}

// answered takes a request that was carried out.
func (m *Machine) answered(q *store.Request) {
	g := m.groups[q.Row.Group]
	if q.Kind == store.Retry {
		m.cfg.Pauses.Retry(sink.Place{ExchangeOrTopic: q.Row.ExchangeOrTopic, Dest: q.Row.Dest}, m.now)
	}
	if g.pending--; g.pending == 0 {
		g.status = idle
		m.wakeUp(g)
	}
}

// wakeUp reads a group again whose rows somebody else has changed.
func (m *Machine) wakeUp(g *group) {
	m.unrest(g)
	g.blocked = false // the read tells
	g.more, g.rows, g.refused, g.stale = true, some, true, g.wanted
	if g.status == due {
		g.status = idle
	}
	m.touch(g)
}
