package postgres

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
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
	q, _ := w.db.Asked(id)
	return q.State, q.Result
}

func (w *memoryWorld) Ask(c store.Config, kind store.RequestKind, n int64, route event.Route) int64 {
	return w.db.Ask(memorytest.Request{Slot: c.Slot, System: c.SystemID, Kind: kind, N: n, Route: route, Who: "ann", Why: "why"})
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

// In a bubble time is the bubble's: a store in memory knows no other.
func TestMemoryInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &memoryWorld{memorytest.NewDatabase()}
		b := newBench(t, w)
		row := b.row("k", 1, 1)
		row.NextAttempt = time.Now().Add(time.Hour)
		b.deferRow(row)
		_, next, err := b.Due(await.Context(t), 1)
		b.must(err)
		equal(t, "next", next, time.Hour)
		time.Sleep(next) //nolint:forbidigo // the bubble's time
		groups, _, err := b.Due(await.Context(t), 1)
		b.must(err)
		equal(t, "due", groups, []uint64{row.Group})
		equal(t, "age", time.Since(b.runs(all, row.Group)[0].Rows[0].DeferredAt), time.Hour)

		// A bare position goes once the slot has saved a position behind it.
		deadLetter := b.deadLetter("l")
		b.answer(b.Ask(b.c, store.Purge, deadLetter.N, event.Route{}), true, sink.Outcome{})
		for _, saved := range []struct {
			at   event.Position
			want string
		}{{deadLetter.Event.Position, "purged"}, {event.Position{Commit: deadLetter.Event.Position.Commit + 1}, ""}} {
			w.db.Save(b.c.Slot, saved.at.Commit)
			_, err := b.Expire(await.Context(t), 0, 10)
			b.must(err)
			b.wantWhere(saved.want, deadLetter)
		}
	})
}
