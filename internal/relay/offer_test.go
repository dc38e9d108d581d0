package relay

import (
	"fmt"
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
