package postgres

import (
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	retrystore "github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// unmirrored reads the numbers of the next dead letters of a mirror.
func (b *bench) unmirrored(limit int, size int64) (ns []int64) {
	b.Helper()
	deadLetters, err := b.mirror(b.c).Unmirrored(await.Context(b.T), 0, limit, size)
	b.must(err)
	for i := range deadLetters {
		ns = append(ns, deadLetters[i].N)
	}
	return ns
}

func testMirror(b *bench) {
	deferred := b.row("k", 1, 1)
	b.deferRow(deferred)
	died := b.row("k", 1, 1)
	b.deferRow(died)
	var rows []*retrystore.Row
	for range 5 {
		rows = append(rows, b.deadLetter("l"))
	}
	raw := b.row("r", 1, 1)
	raw.Dead, raw.Class, raw.Reason, raw.Event.Raw = true, sink.Permanent, sink.Undecodable, []byte(`{"id":null}`)
	b.deferRow(raw)
	// A row that becomes a dead letter has its old number, which is before those of dead letters
	// that were there.
	b.must(b.Apply(await.Context(b.T), []retrystore.Result{{Row: died, Kind: retrystore.Dead, Class: sink.Transient, Reason: sink.BrokerException, Text: "541 of 7", Attempts: 3}}))
	b.answer(b.Ask(b.c, retrystore.Purge, rows[0].N, event.Route{}), true, sink.Outcome{})
	b.answer(b.Ask(b.c, retrystore.Redact, rows[1].N, event.Route{}), true, sink.Outcome{})
	// closed, and a copy of it is wanted all the same
	b.answer(b.Ask(b.c, retrystore.Discard, rows[2].N, event.Route{}), true, sink.Outcome{})
	want := []int64{died.N, rows[2].N, rows[3].N, rows[4].N, raw.N}
	equal(b, "all", b.unmirrored(10, all), want)
	equal(b, "a page", b.unmirrored(2, all), want[:2])
	equal(b, "no bytes", b.unmirrored(10, 1), want[:1])
	size := int64(died.Event.Size())
	equal(b, "bytes of one", b.unmirrored(10, size), want[:1])
	equal(b, "bytes of one, and one", b.unmirrored(10, size+1), want[:2])

	deadLetters, err := b.mirror(b.c).Unmirrored(await.Context(b.T), want[2], 10, all)
	b.must(err)
	if len(deadLetters) != 2 || deadLetters[0].N != want[3] || deadLetters[1].N != want[4] {
		b.Errorf("above %d: %+v", want[2], deadLetters)
	}
	deadLetters, err = b.mirror(b.c).Unmirrored(await.Context(b.T), 0, 10, all)
	b.must(err)
	testMirrorDeadLetters(b, deadLetters, died, rows[2], raw)

	store := b.mirror(b.c)
	for range 2 { // what was lost is said once more
		b.must(store.NoteMirrored(await.Context(b.T), []int64{rows[3].N, died.N, deferred.N, 99}))
	}
	equal(b, "the rest", b.unmirrored(10, all), []int64{rows[2].N, rows[4].N, raw.N})
	b.must(b.Apply(await.Context(b.T), []retrystore.Result{{Row: deferred, Kind: retrystore.Dead}}))
	equal(b, "with one that was no dead letter yet when it was noted", b.unmirrored(10, all), []int64{deferred.N, rows[2].N, rows[4].N, raw.N})
	other := b.with(func(c *retrystore.Config) { c.SystemID = "7000000000000000009" })
	equal(b, "of another system", other.unmirrored(10, all), nil)
	b.must(other.mirror(other.c).NoteMirrored(await.Context(b.T), []int64{raw.N}))
	equal(b, "what another system has noted", len(b.unmirrored(10, all)), 4)
}

// testMirrorDeadLetters looks at what is read of a row that died, of a dead letter, and of what
// could not be decoded.
func testMirrorDeadLetters(b *bench, deadLetters []dlq.DeadLetterRow, died, deadLetter, raw *retrystore.Row) {
	b.Helper()
	for i, want := range []*retrystore.Row{died, deadLetter} {
		l := &deadLetters[i]
		got, ev := l.Event, want.Event
		equal(b, "position", got.Position, ev.Position)
		equal(b, "commit time", got.CommitTime.Equal(ev.CommitTime) && got.Time.Equal(ev.Time), true)
		equal(b, "event", [][]byte{got.ID, got.Key, got.Aggregate, got.Type, got.Payload, got.Raw}, [][]byte{ev.ID, ev.Key, ev.Aggregate, ev.Type, ev.Payload, nil})
		equal(b, "route", *got.Route, *ev.Route)
		equal(b, "it died just now", time.Since(l.Died).Abs() < time.Hour, true)
	}
	l := &deadLetters[0]
	equal(b, "refusal", []string{l.Class, l.Reason, l.Text}, []string{"transient", "broker_exception", "# of #"})
	equal(b, "attempts", l.Attempts, 3)
	equal(b, "times", l.First != nil && l.Last != nil, true)
	l = &deadLetters[1]
	equal(b, "refusal", []string{l.Class, l.Reason, l.Text}, []string{"permanent", "too_large", "too large"})
	equal(b, "times", l.First == nil && l.Last == nil, true)
	equal(b, "raw", deadLetters[len(deadLetters)-1].Event.Raw, raw.Event.Raw)
}

func testMirrorFence(b *bench) {
	deadLetter := b.deadLetter("l")
	former := b.mirror(b.c)
	b = b.with(func(c *retrystore.Config) { c.Epoch = b.raise(b.c.Slot) })
	var stop *event.Stop
	if err := former.NoteMirrored(await.Context(b.T), []int64{deadLetter.N}); !errors.As(err, &stop) || stop.Reason != "fenced" {
		b.Errorf("got %v, want that it is fenced", err)
	}
	if deadLetters, err := former.Unmirrored(await.Context(b.T), 0, 10, all); !errors.As(err, &stop) || len(deadLetters) > 0 {
		b.Errorf("got %d dead letters, %v, want that it is fenced", len(deadLetters), err)
	}
	equal(b, "not noted", b.unmirrored(10, all), []int64{deadLetter.N})
}
