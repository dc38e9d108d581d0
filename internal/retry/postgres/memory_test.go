package postgres

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// memoryWorld is a Database seen as a world.
type memoryWorld struct{ db *memorytest.Database }

func (w *memoryWorld) store(c store.Config) store.Store { return w.db.Store(c) }
func (w *memoryWorld) mirror(c store.Config) dlq.MirrorStore {
	return w.db.Store(c)
}
func (w *memoryWorld) raise(slot string) int64 { return w.db.Lead(slot) }
func (w *memoryWorld) cancel(id int64)         { w.db.Cancel(id) }
func (w *memoryWorld) Asked(id int64) (string, string) {
	q, _ := w.db.RequestByID(id)
	return q.State, q.Result
}

func (w *memoryWorld) Ask(c store.Config, kind store.RequestKind, n int64, route event.Route) int64 {
	return w.db.AddRequest(memorytest.Request{Slot: c.Slot, System: c.SystemID, Kind: kind, N: n, Route: route, Who: "ann", Why: "why"})
}

func (w *memoryWorld) audit(n int64) (list []string) {
	for _, a := range w.db.Audit() {
		if a.N == n {
			list = append(list, fmt.Sprintf("%s, %s, %s, %s, %s", a.Who, a.Action, a.Position, a.Why, a.Result))
		}
	}
	return list
}

func (w *memoryWorld) where(n int64) string { return w.db.Where(n) }
