package rabbit

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// amqp091 may drop a return when the process was suspended while it handed it on. The acked return
// would then count as confirmed, so after such a stop nothing on the connection is believed: the
// event is sent again on the next one.
func TestNothingIsBelievedAfterTheProcessStoodStill(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	wantConfirmed(t, s.send(events(1, "created")...))
	s.firstSession().Wire.Frozen.Store(true)
	all := events(2, "created")
	for _, ev := range all {
		ev.Hash = 0 // lane 0, whose connection it is
	}
	outcomes := make([]sink.Outcome, len(all))
	if err := s.Publish(b.ctx, 0, all, outcomes); err == nil {
		t.Fatal("answers of a suspended process are believed")
	}
	for i, o := range outcomes {
		if o.State != sink.Unknown {
			t.Errorf("event %d is %s", i, o.State)
		}
	}
	// An answer that was missed is not a late one.
	l := s.lanes[0]
	l.begin(all, outcomes)
	ch, err := l.open(b.ctx)
	b.must(err)
	l.send(b.ctx, ch, l.todo)
	ch.Session.Wire.Frozen.Store(true)
	if err := l.conclude(b.ctx, ch, conn.Late, l.resolve(ch)); err == nil || outcomes[0].State != sink.Unknown {
		t.Errorf("late, and suspended: %s, %v", outcomes[0].State, err)
	}
	l.finish()
	clear(outcomes)
	if err := s.Publish(b.ctx, 0, all, outcomes); err != nil || outcomes[0].State != sink.Confirmed {
		t.Errorf("on a new connection: %v, %v", outcomes, err)
	}
}
