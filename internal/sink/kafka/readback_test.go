package kafka

import (
	"context"
	"testing"
	"testing/synctest"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The search goes on where it was when its producer is given up over an event that it does not look
// for. What lies before the event that was found last (E1 E2 E1) is sent again.
func TestReadBackGoesOn(t *testing.T) {
	inMemory(t, 1, 1, Config{ReadBack: true}, func(m *memory, r *running) {
		wantConfirmed(t, r.send(few(1)...))
		found := repeated(3, "events")
		found[1].Route = &event.Route{Name: []byte("events")}
		r.Lead(true)
		l := r.lanes[r.laneOf(found[0])]
		stored := map[digest]int64{}
		for i, at := range map[int]int64{0: 2, 2: 1} {
			d, ok := l.digestOf(found[i], newDigester())
			if !ok {
				t.Fatal("no record")
			}
			stored[d] = at
		}
		tail := &r.states.stateOf("events", 0).tail
		tail.term.Store(1)
		tail.stored.Store(&stored)
		m.turn(1, false, true, 0)
		ctx, cancel := context.WithCancel(context.Background())
		outcomes, ended := make([]sink.Outcome, 2), make(chan error)
		go func() { ended <- l.publish(ctx, found[:2], outcomes) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil || outcomes[0].State != sink.Confirmed || outcomes[1].State != sink.Unknown {
			t.Errorf("%v: %v", err, outcomes)
		}
		m.turn(1, false, false, 0)
		wantConfirmed(t, r.send(found[2]))
		if n := r.readBack.found.Load(); n != 1 {
			t.Errorf("%d events were found, want the first", n)
		}
	})
}

// What lies before the first event takes no memory: so much of each partition's log would be kept
// until an event comes there.
func TestReadBackRemembersWhatMayCome(t *testing.T) {
	first := event.Position{Commit: 100}
	tail := tailDigests{digester: newDigester(), from: first}
	tail.Begin()
	for n, at := range []event.Position{{Commit: 99, Index: 7}, first, {Commit: 100, Index: 1}} {
		header := kafkago.Header{Key: sink.HeaderPosition, Value: at.Append(nil)}
		if !tail.See(&kafkago.Message{Offset: int64(n), Headers: []kafkago.Header{header}}) {
			t.Errorf("%v is not ours", at)
		}
	}
	if len(tail.stored) != 2 || !tail.Enough() {
		t.Errorf("%d records are remembered, enough %v", len(tail.stored), tail.Enough())
	}
}
