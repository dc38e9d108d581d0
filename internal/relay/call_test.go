package relay

import (
	"testing"
	"testing/synctest"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// TestCallsAreBounded: a call carries at most 512 events and at most 1 MiB; a larger event goes
// alone.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, Config{Ordering: Pipelined})
		b.commitEvents(t, "first") // its call waits while the others arrive
		synctest.Wait()
		b.lsn += 100
		if err := b.Begin(b.lsn, 1); err != nil {
			t.Fatal(err)
		}
		index := uint32(0)
		add := func(n, size int) {
			for range n {
				ev := event.Event{Position: event.Position{Commit: b.lsn, Index: index}, Payload: make([]byte, size)}
				if err := b.Event(t.Context(), &ev); err != nil {
					t.Fatal(err)
				}
				index++
			}
		}
		add(1, 2<<20)
		add(5, 400<<10)
		add(600, 10)
		b.Line.Commit(b.lsn + 10)
		b.Line.Wake(true)
		want := []int{1, 1, 2, 2, sink.MaxCallEvents, 1 + 600 - sink.MaxCallEvents}

		for i, n := range want {
			b.sink.wait(t, 0)
			if got := len(b.sink.waiting(0).ids); got != n {
				t.Fatalf("call %d carries %d events, want %d", i, got, n)
			}
			b.sink.reply(0, nil, nil)
		}
		if err := b.WaitSettled(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
