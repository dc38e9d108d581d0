package rabbit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Reconnecting pauses for about backoffMin at first and for backoffMax at most.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 2 * time.Second
)

// link keeps one of the sink's connections: its goroutine dials, waits for the end and dials again. Lanes ask it for the
// session that is up.
type link struct {
	sink  *Sink
	index int

	mu   sync.Mutex
	sess *session      // nil while there is none
	up   chan struct{} // closed when sess appears; made anew when it goes
	why  string        // why it is away, or "blocked…"; "" when all is well
}

// session waits until the connection is up.
func (l *link) session(ctx context.Context) (*session, error) {
	for {
		l.mu.Lock()
		sess, up := l.sess, l.up
		l.mu.Unlock()
		if sess != nil && sess.alive() {
			return sess, nil
		}
		if sess != nil { // it has ended, and keep has not noticed yet
			select {
			case <-sess.gone:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			l.drop(sess)
			continue
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// drop takes sess out of use; nothing happens when it is out already.
func (l *link) drop(sess *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sess == sess {
		l.sess, l.up = nil, make(chan struct{})
	}
}

// keep holds the connection until ctx is done. It returns an error only for a login that is refused for good.
func (l *link) keep(ctx context.Context) error {
	var backoff time.Duration
	for wasUp := false; ; {
		sess, err := l.sink.dial(ctx, l.noteBlocked)
		if ctx.Err() != nil {
			if sess != nil {
				sess.close(closeTimeout)
			}
			return nil
		}
		if err != nil {
			l.note(explain(err))
			if stop := l.sink.refused(err); stop != nil {
				return stop
			}
			if backoff = longer(backoff); !sleep(ctx, backoff) {
				return nil
			}
			continue
		}
		began := time.Now()
		l.serve(ctx, sess, wasUp)
		wasUp = true
		if time.Since(began) > backoffMax {
			backoff = 0
		} else if backoff = longer(backoff); !sleep(ctx, backoff) {
			return nil
		}
	}
}

// longer is the next pause after one of d: twice as long within the bounds, less a random half.
func longer(d time.Duration) time.Duration {
	d = min(max(2*d, 2*backoffMin), backoffMax)
	return d/2 + rand.N(d/2)
}

// serve offers sess to the lanes until it ends or ctx is done.
func (l *link) serve(ctx context.Context, sess *session, again bool) {
	s := l.sink
	s.limits.negotiated(sess.conn.Config.FrameSize)
	s.declare(ctx, sess)
	s.connected.Store(true)
	if h := s.cfg.Hooks.Connected; h != nil {
		h(l.index, again)
	}
	l.mu.Lock()
	l.sess, l.why = sess, ""
	close(l.up)
	l.mu.Unlock()
	s.logState()

	select {
	case <-ctx.Done():
		l.drop(sess)
		sess.close(closeTimeout)
	case <-sess.gone:
		l.drop(sess)
		l.note(sess.reason())
		sess.wait()
	}
}

// note records why the connection is away ("": it is up) and has the sink log what changed.
func (l *link) note(why string) {
	l.mu.Lock()
	l.why = why
	l.mu.Unlock()
	l.sink.logState()
}

// noteBlocked records an alarm of the broker's.
func (l *link) noteBlocked(on bool) {
	why := ""
	if on {
		why = "blocked by the broker (memory or disk alarm)"
	}
	l.note(why)
}

// reason is why an ended session ended.
func (s *session) reason() string {
	select {
	case <-s.gone:
	default:
		return "ending"
	}
	if s.end == nil {
		return "closed"
	}
	if s.end.Server {
		return fmt.Sprintf("broker %s closed the connection: %d %s", s.address, s.end.Code, s.end.Reason)
	}
	return fmt.Sprintf("connection to %s lost: %s", s.address, s.lostBecause(s.end))
}

// lostBecause is why a connection ended without a close frame: what ended it on this side, or what amqp091 met.
func (s *session) lostBecause(end *amqp.Error) string {
	if err := s.wire.cause(); err != nil {
		return words(err)
	}
	if end == nil {
		return "closed"
	}
	return ephemeral.ReplaceAllString(end.Reason, "")
}

// declare declares a constant exchange, when asked to. A refusal is logged and left to the publishes, which then name it.
func (s *Sink) declare(ctx context.Context, sess *session) {
	name, constant := s.cfg.Exchange.Constant()
	if !s.cfg.Declare || !constant || name == "" {
		return
	}
	err := sess.throwAway(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if err != nil {
		s.cfg.Log.Warn("declare exchange", zap.String("exchange", name), zap.Error(err))
	}
}

// refused turns a login that the broker has refused for LoginTimeout, while no connection was ever made, into the end.
func (s *Sink) refused(err error) error {
	if s.connected.Load() {
		return nil
	}
	var ex *amqp.Error
	if !errors.As(err, &ex) || ex.Code != amqp.AccessRefused {
		s.refusedSince.Store(0)
		return nil
	}
	now := time.Now().UnixNano()
	s.refusedSince.CompareAndSwap(0, now)
	if time.Duration(now-s.refusedSince.Load()) < s.cfg.LoginTimeout {
		return nil
	}
	return &outbox.Stop{
		Code: outbox.ExitFailure, Reason: "broker_login",
		What: fmt.Sprintf("the broker has refused the login for %s", s.cfg.LoginTimeout),
		Mend: "check sink.rabbitmq.username and password", Err: errors.New(words(err)),
	}
}

// sleep waits for d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
