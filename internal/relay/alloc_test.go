package relay

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// TestNoAllocationPerEvent: once its pools are filled, the line makes no garbage.
func TestNoAllocationPerEvent(t *testing.T) {
	const rows = 5000
	for _, ordering := range []Ordering{Key, Pipelined} {
		confirmed, published := 0, 0
		l := New(Config{Ordering: ordering, MaxInFlight: 1000, Sink: nullSink{lanes: 4}, RetryTable: noRetryTable{}, Hooks: Hooks{
			Confirmed: func(lane int, events []*event.Event, _ time.Time) {
				if lane == 0 {
					confirmed += len(events)
				}
			},
			Published: func(lane int, _ *event.Event, refusals int, _ time.Time) {
				if refusals != 0 {
					t.Errorf("an event that was never refused has %d refusals", refusals)
				}
				if lane == 0 {
					published++
				}
			},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		ev := event.Event{ID: []byte("id"), Payload: make([]byte, 512), Columns: [][]byte{[]byte("x"), nil}, Ordered: true}
		lsn := pglogrepl.LSN(0)
		allocs := testing.AllocsPerRun(20, func() {
			lsn += 100
			if err := l.Begin(lsn, 1); err != nil {
				t.Fatal(err)
			}
			for i := range rows {
				ev.Position = event.Position{Commit: lsn, Index: uint32(i)}
				ev.Hash = uint64(i%300) << 32
				if err := l.Event(ctx, &ev); err != nil {
					t.Fatal(err)
				}
			}
			l.Commit(lsn + 10)
			l.Wake(true)
			if err := l.WaitSettled(ctx); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > rows/100 {
			t.Errorf("ordering %d: %.0f allocations for %d events", ordering, allocs, rows)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if confirmed == 0 || published != confirmed {
			t.Errorf("the hook Confirmed saw %d events, Published %d", confirmed, published)
		}
	}
}
