package relay

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The rows of an ordering group go in the order in which they were offered, however many are
// offered with them, and to whichever lanes.
func TestOfferKeepsTheOrder(t *testing.T) {
	const lanes, run = 2, 50
	synctest.Test(t, func(t *testing.T) {
		b := start(t, lanes, Config{RetryTable: &shelf{}})
		var rows []*Fed
		for i := range run {
			for lane := range lanes {
				rows = append(rows, &Fed{
					Event: event.Event{ID: fmt.Appendf(nil, "%d of lane %d", i, lane)},
					Place: sink.Place{Lane: lane, ExchangeOrTopic: 1, Dest: 1}, Group: uint64(lane + 1),
				})
			}
		}
		b.Offer(rows)
		for i := range run {
			synctest.Wait()
			for lane := range lanes {
				call, want := b.sink.waiting(lane), fmt.Sprintf("%d of lane %d", i, lane)
				if call == nil || len(call.ids) != 1 || call.ids[0] != want {
					t.Fatalf("lane %d is at %+v, want row %q", lane, call, want)
				}
				b.sink.reply(lane, nil, nil)
			}
		}
	})
}

// A row that is sent apart keeps nobody waiting but its own ordering group, and that until it is
// back, whatever became of it.
func TestRowSentApart(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		out  sink.Outcome
		want []string
	}{
		"confirmed": {nil, sink.Outcome{State: sink.Confirmed}, []string{"first comes back confirmed", "behind comes back confirmed"}},
		"in doubt":  {errors.New("the connection was lost"), sink.Outcome{}, []string{"first comes back unsent", "behind comes back unsent"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &shelf{}
				b := start(t, 1, Config{Ordering: Pipelined, RetryTable: table})
				row := func(id string) *Fed {
					return &Fed{Event: event.Event{ID: []byte(id)}, Place: sink.Place{ExchangeOrTopic: 1, Dest: 1}, Group: 1}
				}
				first := row("first")
				first.Alone = true
				b.Offer([]*Fed{first, row("behind")})
				synctest.Wait()
				b.commitEvents(t, "b")
				synctest.Wait()
				if call := b.sink.waiting(apart); call == nil || call.ids[0] != "first" {
					t.Fatalf("apart is %+v", call)
				}
				if call := b.sink.waiting(0); call == nil || len(call.ids) != 1 || call.ids[0] != "b-0" {
					t.Fatalf("in the lane is %+v, want the new event alone", call)
				}
				b.sink.reply(0, nil, nil)
				synctest.Wait()
				if call := b.sink.waiting(0); call != nil {
					t.Fatalf("%q passes the row that is apart", call.ids)
				}
				b.sink.reply(apart, c.err, map[string]sink.Outcome{"first": c.out})
				synctest.Wait()
				if b.sink.waiting(0) != nil {
					b.sink.reply(0, nil, nil)
				}
				synctest.Wait()
				if news := table.news(); !slices.Equal(news, c.want) {
					t.Errorf("the retry table is told that %q, want %q", news, c.want)
				}
			})
		})
	}
}
