// The mirror: a copy of each dead letter.

package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// MirrorConfig is the configuration of a Mirror.
type MirrorConfig struct {
	Store MirrorStore
	Route event.Route // where dead letters are mirrored to
	// how many extra columns the sink expects of an event; the mirror leaves them NULL
	Columns int
	// Publish publishes the events and waits for their outcomes, one each. Those that are neither
	// Confirmed nor Rejected are offered again. It returns soon after ctx is done.
	Publish func(ctx context.Context, events []*event.Event) []sink.Outcome
	// Mirrored and Failed count confirmed dead letters and rejected attempts; either may be nil.
	Mirrored, Failed func(n int)
	Log              *zap.Logger
}

var _ MirrorStore = (*MirrorPostgres)(nil)

// Mirror publishes a copy of each dead letter: the original body, with headers that say what
// happened. It offers each until the broker has confirmed it; after a crash in between it may offer
// it once more. One goroutine, for one term.
type Mirror struct {
	cfg MirrorConfig

	stop    chan struct{}
	stopped sync.Once
	// The mirror walks through the table by number. A dead letter that the broker rejects for a
	// fault of its own is skipped, so that the others go on, and is tried again in the next walk.
	passed   int64     // of this walk: those up to this number rest; 0: none
	nextWalk time.Time // while some rest

	backoff time.Duration // for all, while the mirror's destination refuses
	logged  string        // the last trouble that was logged
}

// NewMirror makes a Mirror; it starts nothing.
func NewMirror(cfg MirrorConfig) *Mirror {
	return &Mirror{cfg: cfg, stop: make(chan struct{})}
}

const (
	mirrorTick  = time.Second // between two checks for new dead letters
	mirrorRows  = 200         // published at once
	mirrorBytes = 4 << 20     // likewise; one larger dead letter goes alone

	mirrorBackoff    = time.Second
	maxMirrorBackoff = time.Minute
	walkPause        = time.Minute // between two walks, while some are passed
	// A walk that has passed some ends even while new dead letters come faster than it reads them.
	maxWalk = 10 * time.Minute
)

// Stop makes Run return once copies in flight are answered and recorded, so that a clean stop
// repeats nothing.
func (m *Mirror) Stop() { m.stopped.Do(func() { close(m.stop) }) }

// Run mirrors until Stop, or until ctx is done, and returns nil then. Only a newer leader, an
// *event.Stop, ends it before.
func (m *Mirror) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.stop:
			return nil
		case <-timer.C:
		}
		wait, err := m.once(ctx, time.Now())
		var fenced *event.Stop
		switch {
		case ctx.Err() != nil:
			return nil // whatever it was, the term is over
		case errors.As(err, &fenced):
			return err
		case err != nil:
			m.logOnce(err.Error())
			wait = mirrorTick
		}
		timer.Reset(wait)
	}
}

// once mirrors some dead letters and returns how long to wait before the next ones.
func (m *Mirror) once(ctx context.Context, now time.Time) (wait time.Duration, err error) {
	if !now.Before(m.nextWalk) {
		m.passed = 0
	}
	deadLetters, err := m.cfg.Store.Unmirrored(ctx, m.passed, mirrorRows, mirrorBytes)
	if err != nil || len(deadLetters) == 0 {
		if next := now.Add(walkPause); err == nil && next.Before(m.nextWalk) {
			m.nextWalk = next
		}
		return mirrorTick, err
	}
	events := make([]*event.Event, len(deadLetters))
	for i := range deadLetters {
		events[i] = deadLetters[i].copy(&m.cfg.Route, m.cfg.Columns)
	}
	outcomes := m.cfg.Publish(ctx, events)
	var confirmed []int64
	var trouble *sink.Fault
	failed := 0
	for i, o := range outcomes {
		n := deadLetters[i].N
		switch o.State {
		case sink.Confirmed:
			confirmed = append(confirmed, n)
		case sink.Rejected:
			failed++
			if trouble == nil || o.Fault.Class == sink.Destination {
				trouble = o.Fault
			}
			if o.Fault.Class != sink.Destination {
				if m.passed == 0 {
					m.nextWalk = now.Add(maxWalk)
				}
				m.passed = n
			}
		case sink.Unknown, sink.Unsent: // offered again
		}
	}
	if failed > 0 && m.cfg.Failed != nil {
		m.cfg.Failed(failed)
	}
	m.reportTrouble(trouble)
	if err := m.confirm(ctx, confirmed); err != nil {
		return 0, err
	}
	return m.pause(trouble, len(confirmed), len(deadLetters)), nil
}

// pause is long while nothing can be mirrored, short while dead letters are left.
func (m *Mirror) pause(trouble *sink.Fault, confirmed, read int) time.Duration {
	switch {
	case confirmed > 0 || trouble != nil && trouble.Class != sink.Destination:
		m.backoff = 0
		if read < mirrorRows {
			return mirrorTick / 10
		}
		return 0
	default:
		m.backoff = min(max(2*m.backoff, mirrorBackoff), maxMirrorBackoff)
		return m.backoff
	}
}

func (m *Mirror) reportTrouble(f *sink.Fault) {
	if f == nil {
		m.logged = ""
		return
	}
	m.logOnce(fmt.Sprintf("%s: %s: %s", f.Destination, f.Reason, f.Text))
}

func (m *Mirror) logOnce(why string) {
	if why != m.logged {
		m.cfg.Log.Warn("dead letters are not mirrored", zap.String("why", why))
	}
	m.logged = why
}

// confirm records that dead letters were mirrored.
func (m *Mirror) confirm(ctx context.Context, ns []int64) error {
	if len(ns) == 0 {
		return nil
	}
	err := m.cfg.Store.NoteMirrored(ctx, ns)
	if err == nil && m.cfg.Mirrored != nil {
		m.cfg.Mirrored(len(ns))
	}
	return err
}
