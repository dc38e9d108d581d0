package sink

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// One large event at a time is made into a message; small ones pass by.
func TestLargeEventsAreMadeOneAtATime(t *testing.T) {
	l := NewLargeLock()
	var inside atomic.Int32
	var lanes sync.WaitGroup
	large := &event.Event{Payload: make([]byte, 2*largeRow)}
	for range 8 {
		lanes.Go(func() {
			var rec Record
			for range 1000 {
				l.Enter(&rec, l.IsLarge(large))
				if n := inside.Add(1); n > 1 {
					t.Errorf("%d are inside", n)
				}
				inside.Add(-1)
				l.Leave(&rec, true)
			}
		})
	}
	lanes.Wait()
	var outer, rec Record
	l.Enter(&outer, true)
	small := &event.Event{Payload: make([]byte, largeRow)}
	whole := small.Budget()
	l.Enter(&rec, l.IsLarge(small)) // would wait for ever
	if rec.Reset(small); rec.Budget.Left() >= whole.Left() {
		t.Error("the budget of many at once is no small one")
	}
	if l.Leave(&rec, false) {
		t.Error("it is made again")
	}
	rec.Budget.UseUp()
	if !l.Leave(&rec, false) {
		t.Error("it is not made again, alone")
	}
	l.Leave(&outer, true)
	l.Enter(&rec, true)
	if rec.Reset(small); rec.Budget != whole {
		t.Error("the budget of one that is alone is not whole")
	}
	l.Leave(&rec, true)
}

// Buffers that have grown are not kept, whatever they hold.
func TestReuse(t *testing.T) {
	if b := ReuseBuffer(make([]byte, 5, keptBuffer)); cap(b) != keptBuffer || len(b) != 0 {
		t.Errorf("%d of %d bytes", len(b), cap(b))
	}
	if b := ReuseBuffer(make([]byte, 5, keptBuffer+1)); b != nil {
		t.Errorf("%d bytes are kept", cap(b))
	}
	if h := ReuseBuffer(make([]Header, 5, keptBuffer/headerSize+1)); h != nil {
		t.Errorf("%d headers are kept", cap(h))
	}
	rec := Record{Headers: make([]Header, 90_000), Buf: make([]byte, 1<<20)}
	if rec.Forget(); rec.Headers != nil || rec.Buf != nil {
		t.Error("a record keeps what has grown")
	}
}
