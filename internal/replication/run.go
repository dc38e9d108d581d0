// The loop of the relay: session after session until it is asked to stop or cannot go on, with a
// growing pause after each failure (backoff).

package replication

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// Run relays until reading is done, then finishes what was read (until draining is done or the
// grace is over) and returns nil after a clean stop. Any other error is an *event.Stop: the relay
// cannot go on by itself.
func (s *Stream) Run(reading, draining context.Context) error {
	s.started = time.Now()
	s.forget()
	var t *session.Term
	defer func() {
		t.End()
		s.cfg.Primary.Forget()
	}()

	prepared := false
	wait := backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
	for {
		err := s.checkServer(reading, &t)
		if err == nil && !prepared {
			if err = slot.Prepare(reading, s.pool, s.cfg); err == nil {
				prepared, s.everConnected = true, true
				wait.reset()
			}
		}
		if err == nil {
			err = s.session(reading, draining, &t, &wait)
		}
		switch {
		case errors.Is(err, session.ErrCleanStop):
			return nil
		case errors.Is(err, errPrepareAgain), errors.Is(err, errPromoted):
			prepared = false
			t.End()
			t = nil
			if errors.Is(err, errPromoted) {
				s.leave(&t)
			}
			s.status.Enter(survey.Waiting, err.Error()) // the reporter has ended
			continue
		case errors.Is(err, errTaken):
			source.Sleep(reading, standbyPoll) // it may be free again at once, and taken again
			continue                           // to stand by behind it
		}
		if again, err := s.pause(reading, &wait, err); !again {
			if err == nil && t != nil {
				return s.stoppedWithoutSession(t)
			}
			return err
		}
	}
}

// session is one session of a leader, once the slot is free. The watch for a shutdown of the server
// begins before it and ends after it.
func (s *Stream) session(reading, draining context.Context, t **session.Term, wait *backoff) error {
	if err := s.standBy(reading, t); err != nil {
		return err
	}
	acquiring, abandon := context.WithCancelCause(reading)
	defer abandon(nil)
	watch := session.NewShutdownWatch(s.common)
	watching, stop := context.WithCancel(context.Background())
	var watched sync.WaitGroup
	watched.Go(func() { watch.Run(watching, abandon) })
	defer watched.Wait()
	defer stop()
	se, err := s.acquire(acquiring, watch, t)
	if err != nil {
		return err
	}
	s.streaming(*t)
	began := time.Now()
	err = se.Run(reading, draining)
	s.keep(*t, se.Received.Load())
	if time.Since(began) > steady {
		wait.reset()
	}
	// Whatever ended the session may also have ended the pool's connections unnoticed.
	s.pool.Reset()
	return err
}

// streaming says that a session of t begins.
func (s *Stream) streaming(t *session.Term) {
	s.sessions++
	s.said = ""
	if s.sessions > 1 && s.cfg.Hooks.Reconnect != nil {
		s.cfg.Hooks.Reconnect()
	}
	s.status.Enter(survey.Streaming, "")
	s.cfg.Log.Info("streaming", zap.String("slot", s.cfg.Slot), zap.Int64("epoch", t.Epoch))
}

// stoppedWithoutSession ends a process that leads but has lost its session: nothing can be
// reported.
func (s *Stream) stoppedWithoutSession(t *session.Term) error {
	if n := t.Line.Unsettled(); n > 0 {
		return session.GraceOver(n)
	}
	s.cfg.Log.Warn("stopped without a session: what was confirmed since the last report is sent again at the next start")
	return nil
}

// pause decides whether to try again after err, logs the reason (each reason once) and waits. A nil
// error to return means that the relay was asked to stop.
func (s *Stream) pause(reading context.Context, wait *backoff, err error) (again bool, _ error) {
	var stop *event.Stop
	if errors.As(err, &stop) {
		s.ended = s.decidedOr(context.WithoutCancel(reading), "") // the first answer is a change
		return false, slot.Named(reading, *s.cfg, err, s.common.Good())
	}
	if reading.Err() != nil {
		return false, nil //nolint:nilerr // whatever it was, the relay is to stop
	}
	if stop := schema.Misfit(err); stop != nil {
		return false, stop
	}
	if stop := source.FatalConnect(s.cfg, err, s.everConnected, s.started); stop != nil {
		return false, stop
	}
	why := source.StableText(source.OneLine(err).Error())
	if fix := source.Fix(s.cfg, err); fix != "" {
		why += "; " + fix
	}
	s.wait(why)
	return source.Sleep(reading, wait.next()), nil
}

// steady is how long a session must last to reset the backoff.
const steady = 10 * time.Second

// backoff doubles from min to max, with full jitter in the upper half.
type backoff struct {
	min, max time.Duration
	current  time.Duration
}

func (b *backoff) next() time.Duration {
	b.current = min(max(2*b.current, b.min), b.max)
	return b.current/2 + rand.N(b.current/2+1)
}

func (b *backoff) reset() { b.current = 0 }
