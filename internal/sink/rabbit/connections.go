// The connections that the sink keeps: how they are made, and what happens when one is opened or
// refused.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// newLink makes one of the sink's connections.
func (s *Sink) newLink() *conn.Link {
	l := conn.NewLink(notConnected)
	l.Connect, l.OnConnected, l.OnChanged = s.cfg.Dial, s.opened, s.logState
	l.OnFailed = func(err error) (string, error) { return explain(err), s.refused(err) }
	return l
}

const notConnected = "not connected yet"

// opened prepares a new connection.
func (s *Sink) opened(ctx context.Context, sess *conn.Session, again bool) {
	s.limits.Negotiated(sess.FrameMax())
	s.declare(ctx, sess)
	s.connected.Store(true)
	if doubt := s.doubt(sess); doubt != "" {
		s.cfg.Log.Warn("broker has no cluster name", zap.String("reason", doubt+"; "+fixDoubt))
	}
	if h := s.cfg.Connected; h != nil {
		h(again)
	}
}

// declare declares a constant exchange, when asked to. A refusal is logged and left to the
// publishes, which then name it.
func (s *Sink) declare(ctx context.Context, sess *conn.Session) {
	name, constant := s.cfg.Exchange.Constant()
	if !s.cfg.Declare || !constant || name == "" {
		return
	}
	err := sess.ThrowAway(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if err != nil {
		s.cfg.Log.Warn("declare exchange", zap.String("exchange", name), zap.Error(err))
	}
}

// refused stops the sink when the broker has refused the login for LoginTimeout and no connection
// was ever made.
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
	return &event.Stop{
		Code: event.ExitFailure, Reason: "broker_login",
		What: fmt.Sprintf("the broker has refused the login for %s", s.cfg.LoginTimeout),
		Fix:  "check sink.rabbitmq.username and password", Err: errors.New(conn.ErrorText(err)),
	}
}

// Up reports whether every connection is up and not blocked, and if not, why.
func (s *Sink) Up() (ok bool, why string) {
	for _, l := range s.links {
		if why, _ := l.State(); why != "" {
			return false, why
		}
	}
	return true, ""
}

// logState writes one line when Up or its reason changed.
func (s *Sink) logState() {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	up, why := s.Up()
	if why == s.logged {
		return
	}
	s.logged = why
	if up {
		s.cfg.Log.Info("broker connected", zap.Int("connections", len(s.links)))
		return
	}
	s.cfg.Log.Warn("broker unavailable", zap.String("reason", why))
}
