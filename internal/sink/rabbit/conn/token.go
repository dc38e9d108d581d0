// The token of a connection is replaced before it ends.

package conn

import (
	"context"
	"time"

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
	for {
		login := *s.login.Load()
		timer := time.NewTimer(max(tokens.UntilRenewal(login.Password), renewPause))
		select {
		case <-timer.C:
		case <-s.Gone:
			timer.Stop()
			return
		}
		token, err := tokens.Token(ctx)
		if err != nil || token == login.Password {
			continue
		}
		err = s.callBroker(ctx, func() error { return s.amqp.UpdateSecret(token, "a new token") }, func() {})
		if err == nil {
			login.Password = token
			s.login.Store(&login)
		}
	}
}
