package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// nullSink confirms all at once.
type nullSink struct{ lanes uint64 }

func (s nullSink) Place(ev *event.Event) (sink.Place, bool) {
	return sink.Place{Lane: int(ev.Hash >> 32 % s.lanes), ExchangeOrTopic: 1, Dest: 2}, true
}
func (nullSink) Route(*event.Event) event.Route { return event.Route{} }
func (nullSink) Changed() <-chan struct{}       { return nil }
func (nullSink) Run(ctx context.Context) error  { <-ctx.Done(); return nil }
func (nullSink) Publish(_ context.Context, _ int, events []*event.Event, outcomes []sink.Outcome) error {
	for i := range events {
		outcomes[i].State = sink.Confirmed
	}
	return nil
}

// BenchmarkLine is an event's way from Event to its settlement, with a sink that costs nothing.
func BenchmarkLine(b *testing.B) {
	for _, ordering := range []Ordering{Key, Pipelined} {
		for _, rows := range []int{1, 100} {
			b.Run(fmt.Sprintf("ordering=%d/rows=%d", ordering, rows), func(b *testing.B) { benchmarkLine(b, ordering, rows) })
		}
	}
}

func benchmarkLine(b *testing.B, ordering Ordering, rows int) {
	const keys = 1000
	l := New(Config{Ordering: ordering, Sink: nullSink{lanes: 32}, RetryTable: noRetryTable{}})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	ev := event.Event{ID: make([]byte, 16), Key: []byte("key-1234"), Aggregate: []byte("order"), Type: []byte("created"), Payload: make([]byte, 512), Ordered: true, CommitTime: time.Now()}
	b.ReportAllocs()
	lsn := pglogrepl.LSN(1000)
	n := 0
	for b.Loop() {
		if n%rows == 0 {
			lsn += 1000
			if err := l.Begin(lsn, 1); err != nil {
				b.Fatal(err)
			}
		}
		ev.Position = event.Position{Commit: lsn, Index: uint32(n % rows)}
		ev.Hash = uint64(n%keys) * 0x9e3779b97f4a7c15
		binary.BigEndian.PutUint64(ev.ID, uint64(n))
		if err := l.Event(ctx, &ev); err != nil {
			b.Fatal(err)
		}
		n++
		if n%rows == 0 {
			l.Commit(lsn + 100)
			l.Wake(true)
		}
	}
	if n%rows != 0 {
		l.Commit(lsn + 100)
		l.Wake(true)
	}
	if err := l.WaitSettled(ctx); err != nil {
		b.Fatal(err)
	}
	if got := l.Watermark().LSN; got != lsn+100 {
		b.Fatalf("watermark %s, want %s", got, lsn+100)
	}
	cancel()
	<-done
}
