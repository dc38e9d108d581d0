// The token of a connection is replaced before it ends.

package conn

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// renewPause is the shortest time between two attempts to get a new token for a connection.
const renewPause = time.Second

// renewToken gives the broker each new token of the source, until the connection has ended. Without
// it the broker would refuse everything once the token has expired (403), or end the connection
// (from 4.3 on). While no new token can be had the connection stands; outdatedLogin of the sink
// knows what the broker does then.
func (s *Session) renewToken(tokens *sink.TokenSource) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !s.Spawn(func() { <-s.Gone; cancel() }) {
		return
	}
	given := s.login.Load().Password // the last one that the broker was given
	for {
		login := *s.login.Load()
		timer := time.NewTimer(max(tokens.UntilRenewal(login.Password), renewPause))
		select {
		case <-timer.C:
		case <-s.Gone:
			timer.Stop()
			if ex := s.end; ex != nil && (ex.Code == amqp.AccessRefused || ex.Code == amqp.NotAllowed && s.renewing.Load()) {
				_ = tokens.Refused(given, ex) //nolint:errcheck // the next login tells why
			}
			return
		}
		token, err := tokens.Token(ctx)
		if err != nil || token == login.Password {
			continue
		}
		given = token
		s.renewing.Store(true) // and so it stays if this ends the connection
		err = s.callBroker(ctx, func() error { return s.amqp.UpdateSecret(token, "a new token") }, func() {})
		if err == nil {
			s.renewing.Store(false)
			login.Password = token
			s.login.Store(&login)
		}
	}
}

// AccusesLogin reports whether ex may be about the connection's login, and so about no message: the
// connection has ended, perhaps because the broker did not take a new token. RabbitMQ ends it with
// 530 then, which messages may cause as well. Later versions have 403, which ends only a channel
// when it is about a message.
func (s *Session) AccusesLogin(ex *amqp.Error) bool {
	return !s.Alive() && (s.renewing.Load() || ex.Code == amqp.AccessRefused)
}
