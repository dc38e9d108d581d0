// The bounds of what a machine knows, and of what it sends apart.

package order

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/pauses"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A few groups that cannot be forgotten, because the database refuses their results, do not keep
// all later ones in memory (I5).
func TestGroupsThatStayDoNotKeepTheOthers(t *testing.T) {
	const stay, pass = 100, 1000
	place := sink.Place{ExchangeOrTopic: theExchange, Dest: 1}
	m := New(Config{
		OneByOne: true, MaxAttempts: 3, Room: NewRoom(1), Pauses: pauses.New(pauses.Config{}),
		Spin:     func(int) time.Duration { return 50 * time.Millisecond },
		Backoff:  func(int) time.Duration { return time.Second },
		Patience: func(time.Duration) time.Duration { return time.Second },
	})
	in := &Input{Now: time.Unix(1000, 0)}
	for id := range uint64(stay) {
		ev := event.Event{Position: event.Position{Commit: 100, Index: uint32(id)}, Ordered: true}
		row := &inflight.Event{Event: ev, Place: place, Group: id + 1, Row: &store.Row{Group: id + 1, Event: ev, Ordered: true}}
		in.Found = append(in.Found, Found{Group: id + 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, Walk: true})
	}
	in.Outcomes = make([]sink.Outcome, len(m.Step(in).Send))
	for i := range in.Outcomes {
		in.Outcomes[i].State = sink.Confirmed
	}
	in.Found = nil
	m.Step(in) // the results are never committed
	in.Outcomes = nil
	for id := range uint64(pass) {
		in.Written = append(in.Written[:0], Written{RowGroup: stay + 1 + id, Place: place, DueIn: time.Hour})
		m.Step(in)
	}
	if n := len(m.groups); n > stay+2 {
		t.Errorf("%d groups are known: %d stay, there is room for 1", n, stay)
	}
}

// Suspects go one after another, however many there were.
func TestSuspectsGiveTheirPlacesBack(t *testing.T) {
	m := revMachine(Config{OneByOne: true, Apart: true})
	in := Input{Now: time.Unix(1000, 0)}
	for g := range uint64(maxAlone + 1) {
		row := revRow(g+1, uint32(g), 1)
		row.Row.Attempts = 1
		in.Found = []Found{{Group: g + 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, Walk: true}}
		a := m.Step(&in)
		if len(a.Probe) != 1 {
			t.Fatalf("suspect %d is not sent", g)
		}
		in = Input{Now: in.Now, Probed: []Probed{{Event: row, Outcome: sink.Outcome{State: sink.Confirmed}}}}
		m.Step(&in)
		in = Input{Now: in.Now}
	}
}
