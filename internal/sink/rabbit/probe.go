// A probe: how a broker would answer a message, without publishing one.

package rabbit

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	amqp "github.com/rabbitmq/amqp091-go"
)

// probeMark is neither a number of milliseconds nor a user's name.
const probeMark = "cdc-relay-probe"

// probe asks how the broker would take a message for exchange and routing key, without publishing
// one. ex is nil when it would be taken (it may still be unroutable), else the exception. The
// arguments are the probe's to keep.
func probe(ctx context.Context, s *conn.Session, exchange, routingKey string, body []byte) (ex *amqp.Error, err error) {
	closes := make(chan *amqp.Error, 1)
	err = s.ThrowAway(ctx, func(ch *amqp.Channel) error {
		ch.NotifyClose(closes)
		if err := ch.Confirm(false); err != nil {
			return err
		}
		answered, err := ch.PublishWithDeferredConfirm(exchange, routingKey, false, false, amqp.Publishing{
			Expiration: probeMark, UserId: probeMark, Body: body,
		})
		if err != nil {
			return err
		}
		// for the exception; a broker that ignores these properties confirms
		answered.Wait()
		return nil
	})
	if err != nil {
		return nil, err
	}
	ex = <-closes // closed without a value when ThrowAway itself closed the channel
	switch {
	case ex == nil, ex.Code == amqp.PreconditionFailed && sizeLimit(ex) == 0:
		return nil, nil
	case scopeOf(ex) != channelScope:
		return nil, conn.ErrGone
	}
	return ex, nil
}
