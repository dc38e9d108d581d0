package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// drawMirror draws whether dead letters are mirrored, and what goes wrong with it. It has dice of
// its own.
func (p *plan) drawMirror(d *dice) {
	if p.mirror = d.in(400); !p.mirror {
		return
	}
	poisonous := pick(d, 0, 100, 300)
	for _, e := range p.events {
		if d.in(poisonous) {
			e.copyPoison = pick(d, -1, 1, 2)
		}
	}
	for range d.n(3) {
		h := breaks(d, mirrorExchangeOrTopic)
		if h.at == 0 {
			h.at = d.upTo(p.chaosEnd)
		}
		p.happens = append(p.happens, h)
	}
}

// mirror is the real one of a term, and its way through the lanes, as cmd composes them.
type mirror struct {
	*dlq.Mirror
	done chan struct{}
}

func (t *term) newMirror(copies *relay.Copies) *mirror {
	to := event.Route{Name: unitName(mirrorExchangeOrTopic)}
	if !t.w.atomic {
		to.RoutingKey = keyName(0)
	}
	return &mirror{done: make(chan struct{}), Mirror: dlq.NewMirror(dlq.MirrorConfig{
		Store: mirrorStore{t.store}, Route: to, Publish: copies.Publish, Log: zap.NewNop(),
	})}
}

// run is cmd's operators.runMirror.
func (m *mirror) run(ctx context.Context) error {
	if m == nil {
		return nil
	}
	defer close(m.done)
	return m.Run(ctx)
}

// stop is cmd's operators.stop.
func (m *mirror) stop() {
	if m != nil {
		m.Stop()
	}
}

// wait is cmd's operators.wait.
func (m *mirror) wait(ctx context.Context) {
	if m == nil {
		return
	}
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-m.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// checkNoted checks that a stop that was not cut leaves no copy behind that the next leader would
// make once more.
func (t *term) checkNoted() {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.mirror == nil || !t.mirror.ended() || t.epoch != w.epoch {
		return
	}
	for _, l := range w.db.DeadLetters(slot) {
		if e := w.eventAt[l.Row.Event.Position]; t.copied[e.n] > 0 && t.recopies[e.n] == 0 && !l.Mirrored {
			w.failLocked(e, "mirror: %s has copied %s and stopped, and it is not noted", t.name, e)
		}
	}
}

// ended reports whether it has come to its end.
func (m *mirror) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// isCopy reports whether an event is on its way to the mirror's destination.
func isCopy(ev *event.Event) bool {
	return ev.Route != nil && bytes.Equal(ev.Route.Name, unitName(mirrorExchangeOrTopic))
}

// poisonous reports whether the broker refuses an event for itself.
func (m *message) poisonous() bool {
	if m.from == fromMirror {
		return m.e.copyPoison != 0
	}
	return m.e.poison != 0
}

// doubt notes that it is not known whether the broker has a message. It is called with the world
// locked.
func (t *term) doubt(m *message) {
	if m.from == fromMirror {
		t.recopies[m.e.n]++
		return
	}
	t.doubts[m.e.n]++
}

// answerCopy is what the broker says to the copy of a dead letter.
func (w *world) answerCopy(who string, t *term, e *simEvent, dest int) *sink.Fault {
	switch {
	case w.exchangeOrTopicBroken[mirrorExchangeOrTopic]:
		return &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Whole: true, Destination: "the mirror"}
	case w.destBroken[mirrorExchangeOrTopic][dest]:
		return &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Destination: "the mirror"}
	case e.copyPoison < 0:
		return &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge, Destination: "the mirror"}
	case e.copyPoison > 0:
		e.copyPoison--
		return &sink.Fault{Class: sink.Transient, Reason: sink.BrokerException, Destination: "the mirror", Text: "541"}
	}
	e.copies++
	w.noteLocked(who, e, "is COPIED (%d)", e.copies)
	if t == nil {
		return nil
	}
	if t.copied[e.n]++; t.copied[e.n] > 1+t.recopies[e.n] {
		w.failLocked(e, "mirror: %s copies %s for the %d. time in its term, %d would be right", who, e, t.copied[e.n], 1+t.recopies[e.n])
	}
	return nil
}

// unmirrored reports what dead letter has no copy, and nothing that its copy waits for is broken.
func (w *world) unmirrored() string {
	broken := w.exchangeOrTopicBroken[mirrorExchangeOrTopic] || w.destBroken[mirrorExchangeOrTopic] != [dests]bool{}
	if !w.mirror || broken {
		return ""
	}
	for _, l := range w.db.DeadLetters(slot) {
		e := w.eventAt[l.Row.Event.Position]
		if !l.Mirrored && !l.Redacted && l.State != memorytest.Purged && e.copyPoison == 0 {
			return fmt.Sprintf("the dead letter of %s is not mirrored", e)
		}
	}
	return ""
}

// mirrorStore is the database as a term's mirror sees it.
type mirrorStore struct{ *faultyStore }

var _ dlq.MirrorStore = mirrorStore{}

func (s mirrorStore) Unmirrored(ctx context.Context, after int64, limit int, size int64) (list []dlq.DeadLetterRow, err error) {
	err = s.do(ctx, &s.mirror, theLookup, "unmirrored", func(ctx context.Context) (err error) {
		list, err = s.memory.Unmirrored(ctx, after, min(limit, s.t.w.page), size)
		return err
	})
	return list, err
}

// NoteMirrored checks that what is noted is true (invariant I2's way, of copies).
func (s mirrorStore) NoteMirrored(ctx context.Context, ns []int64) error {
	w := s.t.w
	var events []*simEvent
	for _, l := range w.db.DeadLetters(slot) {
		if slices.Contains(ns, l.Row.N) {
			events = append(events, w.eventAt[l.Row.Event.Position])
		}
	}
	err := s.do(ctx, &s.mirror, theLookup, "note mirrored", func(ctx context.Context) error {
		w.mu.Lock()
		for _, e := range events {
			if e.copies == 0 {
				w.failLocked(e, "mirror: %s notes %s as mirrored, and the broker has no copy", s.t.name, e)
			}
		}
		w.mu.Unlock()
		return s.memory.NoteMirrored(ctx, ns)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		w.noteLocked(s.t.name, e, "is noted as mirrored: %v", err)
		if err != nil {
			s.t.recopies[e.n]++ // it is read once more, perhaps
		}
	}
	return err
}

// isFenced reports whether a statement met a newer leader.
func isFenced(err error) bool {
	var stop *event.Stop
	return errors.Is(err, store.ErrFenced) || errors.As(err, &stop)
}
