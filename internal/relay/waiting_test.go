package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// TestSnapshotCountsWhatWaits: an event that was read is counted also while it waits outside the
// line, for its lane or for room, and no longer than that.
func TestSnapshotCountsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, Config{MaxInFlight: 1})
		want := func(when string, events, waiting int, oldest int64) {
			t.Helper()
			synctest.Wait()
			s := b.Snapshot()
			at := time.Time{}
			if oldest != 0 {
				at = time.Unix(oldest, 0)
			}
			if s.Events != events || s.Waiting != waiting || !s.OldestCommit.Equal(at) {
				t.Fatalf("%s: %d events, %d waiting, the oldest of %s", when, s.Events, s.Waiting, s.OldestCommit)
			}
		}
		known := func(is bool) {
			b.sink.mu.Lock()
			b.sink.unknown = !is
			b.sink.mu.Unlock()
		}
		known(false)
		read := make(chan struct{})
		go func() {
			defer close(read)
			b.commitEvents(t, "a")
			b.commitEvents(t, "b")
		}()
		want("no lane is known", 0, 1, 1100)
		known(true)
		b.sink.changed <- struct{}{}
		want("the in-flight budget is full", 1, 1, 1100)
		b.sink.reply(0, nil, nil)
		want("there is room", 1, 0, 1200)
		<-read
		b.sink.reply(0, nil, nil)
		want("all is settled", 0, 0, 0)

		known(false)
		if err := b.Begin(5000, 2); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			gone <- b.Event(ctx, &event.Event{Position: event.Position{Commit: 5000}, CommitTime: time.Unix(5000, 0)})
		}()
		want("no lane is known again", 0, 1, 5000)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatalf("the event that waited: %v", err)
		}
		want("the session has ended", 0, 0, 0)
		b.Disconnected()
	})
}
