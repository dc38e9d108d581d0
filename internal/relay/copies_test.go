package relay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// scripted is a broker that answers by an event's type.
type scripted struct {
	sink.Sink
	answer chan struct{} // what is of type late waits for
}

func (s *scripted) Place(ev *event.Event) (sink.Place, bool) {
	return sink.Place{Lane: int(ev.ID[0] % 2), ExchangeOrTopic: 1, Dest: 1}, string(ev.Type) != "unknown topic"
}

func (s *scripted) Publish(_ context.Context, _ int, events []*event.Event, outcomes []sink.Outcome) error {
	for i, ev := range events {
		switch string(ev.Type) {
		case "late":
			<-s.answer
			outcomes[i] = sink.Outcome{State: sink.Confirmed}
		case "bad":
			outcomes[i] = sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}
		default:
			outcomes[i] = sink.Outcome{State: sink.Confirmed}
		}
	}
	return nil
}

// onCopies runs a test on the way of copies through a line.
func onCopies(t *testing.T, test func(t *testing.T, c *Copies, s *scripted, line *Line, table *shelf)) {
	synctest.Test(t, func(t *testing.T) {
		s, table := &scripted{answer: make(chan struct{})}, &shelf{}
		line := New(Config{Ordering: Key, MaxInFlight: 10, MaxInFlightBytes: 1 << 20, Sink: s, RetryTable: table})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- line.Run(ctx) }()
		synctest.Wait()
		test(t, &Copies{Line: line}, s, line, table)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func copyOf(id, typ string) *event.Event {
	return &event.Event{ID: []byte(id), Type: []byte(typ), Route: &event.Route{Name: []byte("dlx")}}
}

func states(outcomes []sink.Outcome) (list []sink.State) {
	for _, o := range outcomes {
		list = append(list, o.State)
	}
	return list
}

// Each copy has its own outcome, whatever lane it went through and whatever came back with it; the
// retry table sees its own rows alone.
func TestCopies(t *testing.T) {
	onCopies(t, func(t *testing.T, c *Copies, s *scripted, line *Line, table *shelf) {
		row := &inflight.Event{Event: *copyOf("own", "late"), Row: &store.Row{Group: 9}}
		row.Place, _ = s.Place(&row.Event)
		line.Found(row.Place.Lane, []order.Found{{Group: 9, ExchangeOrTopic: 1, Rows: []*inflight.Event{row}, Walk: true}})
		got := make(chan []sink.Outcome, 1)
		go func() {
			got <- c.Publish(t.Context(), []*event.Event{copyOf("a", "good"), copyOf("b", "bad"), copyOf("c", "unknown topic"), copyOf("d", "good"), copyOf("o", "bad")})
		}()
		synctest.Wait()
		if len(got) > 0 {
			t.Error("it has not waited for those behind a row of the retry table's")
		}
		close(s.answer)
		want := []sink.State{sink.Confirmed, sink.Rejected, sink.Unsent, sink.Confirmed, sink.Rejected}
		if outcomes := <-got; !slices.Equal(states(outcomes), want) || outcomes[1].Fault.Reason != sink.TooLarge {
			t.Errorf("the outcomes are %+v, want %v", outcomes, want)
		}
		synctest.Wait()
		if news := table.news(); !slices.Contains(news, "own comes back confirmed") || slices.ContainsFunc(news, func(n string) bool { return n != "reads" && n != "own comes back confirmed" }) {
			t.Errorf("the retry table is told that %q", news)
		}
		if outcomes := c.Publish(t.Context(), []*event.Event{copyOf("c", "unknown topic")}); !slices.Equal(states(outcomes), []sink.State{sink.Unsent}) {
			t.Errorf("where nothing can be sent: %+v", outcomes)
		}
	})
}

// Publish does not outlive its context. What comes back afterwards is nobody's any more, and no row
// of the retry table's.
func TestCopiesThatAreGivenUp(t *testing.T) {
	onCopies(t, func(t *testing.T, c *Copies, s *scripted, _ *Line, table *shelf) {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan []sink.Outcome, 1)
		go func() { got <- c.Publish(ctx, []*event.Event{copyOf("a", "late"), copyOf("b", "good")}) }()
		synctest.Wait()
		cancel()
		outcomes := <-got
		close(s.answer)
		synctest.Wait()
		if want := []sink.State{sink.Unknown, sink.Unknown}; !slices.Equal(states(outcomes), want) {
			t.Errorf("the outcomes are %v, want %v", states(outcomes), want)
		}
		if news := table.news(); len(news) > 0 {
			t.Errorf("the retry table is told that %q", news)
		}
	})
}
