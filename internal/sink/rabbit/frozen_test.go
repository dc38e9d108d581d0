package rabbit

import (
	"io"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// amqp091 may drop a return when the process stood still while it handed it on. The acked return would then count as
// confirmed, so after such a stop nothing on the connection is believed: the event is sent again on the next one.
func TestNothingIsBelievedAfterTheProcessStoodStill(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	wantConfirmed(t, s.send(events(1, "created")...))
	s.links[0].mu.Lock()
	sess := s.links[0].sess
	s.links[0].mu.Unlock()
	sess.wire.frozen.Store(true)
	all := events(2, "created")
	for _, ev := range all {
		ev.Hash = 0 // lane 0, whose connection it is
	}
	outcomes := make([]sink.Outcome, len(all))
	if err := s.Publish(b.ctx, 0, all, outcomes); err == nil {
		t.Fatal("answers of a connection that stood still are believed")
	}
	for i, o := range outcomes {
		if o.State != sink.Unknown {
			t.Errorf("event %d is %s", i, o.State)
		}
	}
	clear(outcomes)
	if err := s.Publish(b.ctx, 0, all, outcomes); err != nil || outcomes[0].State != sink.Confirmed {
		t.Errorf("on a new connection: %v, %v", outcomes, err)
	}
}

func TestWireRemembersThatItStoodStill(t *testing.T) {
	w, _, far := pipe(t)
	go w.run()
	go func() { _, _ = far.Write([]byte("ab")) }()
	buf := make([]byte, 1)
	read := func() {
		t.Helper()
		if _, err := io.ReadFull(w, buf); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	read()
	if w.wasFrozen(now) {
		t.Error("frozen while it works")
	}
	if !w.wasFrozen(now.Add(time.Minute)) {
		t.Error("not frozen after a minute of work on one read")
	}
	w.working.Store(now.Add(-time.Minute).UnixNano())
	read()
	if !w.wasFrozen(time.Now()) {
		t.Error("the next read makes it forget")
	}
}

// What a call leaves in the lane must not keep the events' memory, which is the caller's again.
func TestCallLeavesNothingInItsLane(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	ev := events(1, "created")
	wantConfirmed(t, s.send(ev...))
	place, _ := s.Place(ev[0])
	m := &s.lanes[place.Lane].message
	if m.pub.Body != nil || m.pub.MessageId != "" || len(m.pub.Headers) != 0 || m.exchange != "" || m.routingKey != "" {
		t.Errorf("left: %+v", *m)
	}
	if m.pub.Headers == nil {
		t.Error("the table is not used again")
	}
}

// A huge message over a slow line is progress as long as pieces of it leave.
func TestWireWritesInPieces(t *testing.T) {
	w, _, far := pipe(t)
	go w.run()
	if _, err := w.Write(make([]byte, 3*wirePiece)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(far, make([]byte, wirePiece+1)); err != nil {
		t.Fatal(err)
	}
	if w.wrote.Load() == 0 {
		t.Error("a piece that left is no progress")
	}
	if w.hasRoom() {
		t.Error("room is given before the message has left")
	}
	if _, err := io.ReadFull(far, make([]byte, 2*wirePiece-1)); err != nil {
		t.Fatal(err)
	}
}
