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
func (s *Sink) newLink(first bool) *conn.Link {
	l := conn.NewLink(notConnected)
	l.OnConnected, l.OnChanged = s.opened, s.logState
	l.Connect = func(ctx context.Context, onBlocked func(bool)) (*conn.Session, error) {
		if s.single.Load() && (!first || s.own() != nil) {
			return nil, errNoSecond
		}
		return s.cfg.Dial(ctx, onBlocked)
	}
	l.OnFailed = func(err error) (string, *conn.Session, error) { return explain(err), s.instead(err), s.refused(err) }
	l.OnEnded = s.ended
	return l
}

const notConnected = "not connected yet"

// opened prepares a new connection.
func (s *Sink) opened(ctx context.Context, sess *conn.Session, again bool) {
	s.prepare(ctx, sess)
	if s.leads.Load() {
		if sess.OpenAll(ctx); sess.Alive() {
			s.crowded.Store(0)
		}
	}
	s.limits.Negotiated(sess.FrameMax())
	s.connected.Store(true)
	if few := s.few(sess.Allowed); few != "" {
		s.cfg.Log.Warn("broker allows few channels", zap.String("reason", few+"; "+s.fixFew()))
	}
	if doubt := s.doubt(sess); doubt != "" {
		s.cfg.Log.Warn("broker has no cluster name", zap.String("reason", doubt+"; "+fixDoubt))
	}
	if h := s.cfg.Connected; h != nil {
		h(again)
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

// outdated returns why an exception accuses the login of its connection, and not a destination; nil
// when it does not. RabbitMQ reads an OAuth 2 token at the login and again when it checks a right.
// So once the token has expired every exchange is refused (403), on a connection that stands. (From
// 4.3 on the broker closes the connection, with a 320.) Such a connection is ended as if it were
// lost: what is unanswered is offered again, and nothing is rejected, so nothing is paused or
// deferred. The next one reads the credentials again. Without a new token its login is refused,
// which is an unavailable broker.
//
// A 403 accuses the login in two cases. No other ends a connection: a channel remembers only the
// rights that it was given, so the same credentials would be refused on a new connection as well.
//
//   - The broker says that it could not read the right from the token. At the login the same node
//     has read the right to the virtual host from it, by the same clock. So a new connection has a
//     good token, and this does not repeat itself.
//   - The credentials have changed since the login. The new ones, a token or not, may have the
//     right, whatever the broker's text: another plugin may have refused, or long names have cut
//     off the cause. An exchange that stays forbidden ends each connection once for each change,
//     and none at a probe. A destination that was paused when the token was late comes back: its
//     next probe is refused, and finds the new one.
func (s *Sink) outdated(sess *conn.Session, ex *amqp.Error) error {
	switch {
	case ex.Code != amqp.AccessRefused:
		return nil
	case tokenExpired(ex):
		return errors.New("the token of its login has expired")
	case s.cfg.Renewed(sess):
		return errors.New("refused, and the credentials have changed since its login")
	}
	return nil
}

// Up reports whether every connection is up and not blocked, and if not, why.
func (s *Sink) Up() (ok bool, why string) {
	for _, l := range s.links {
		if why := l.Why(); why != "" {
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
		s.cfg.Log.Info("broker connected", zap.Int("connections", s.Status().Connections))
		return
	}
	s.cfg.Log.Warn("broker unavailable", zap.String("reason", why))
}
