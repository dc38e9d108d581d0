// The router, which calls another handler for each type of event.

package inbox

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Unknown says what a Router does with a message of a type that has no handler.
type Unknown int

// The choices for an unknown type. A consumer that receives every event ignores. A consumer with a
// topic or binding of its own, to which a new type comes by mistake or too early, rejects: the
// dead letter is replayed when its handler is there.
const (
	Reject Unknown = iota // the message becomes a dead letter
	Ignore                // the message counts as processed
)

// Router chooses the handler of a message by its type. Make it with NewRouter and give Handle to
// Config.Handler, or with NewRouterSQL for Config.HandlerSQL. Add all handlers with On before the
// first message.
//
//	r := inbox.NewRouter(inbox.Reject)
//	inbox.On(r, "order.created", func(ctx context.Context, tx pgx.Tx, order OrderCreated) error {
//		_, err := tx.Exec(ctx, "INSERT INTO notifications (order_id, total) VALUES ($1, $2)",
//			inbox.MessageOf(ctx).Key, order.Total)
//		return err
//	})
//	in, err := inbox.New(inbox.Config{Service: "notification-service", Pool: pool, Handler: r.Handle})
type Router[Tx any] struct {
	unknown  Unknown
	handlers map[string]func(ctx context.Context, tx Tx, m Message) error
}

// NewRouter makes a Router without handlers.
func NewRouter(unknown Unknown) *Router[pgx.Tx] { return newRouter[pgx.Tx](unknown) }

// NewRouterSQL makes a Router without handlers, for database/sql.
func NewRouterSQL(unknown Unknown) *Router[*sql.Tx] { return newRouter[*sql.Tx](unknown) }

func newRouter[Tx any](unknown Unknown) *Router[Tx] {
	return &Router[Tx]{unknown: unknown, handlers: map[string]func(context.Context, Tx, Message) error{}}
}

// On adds the handler of a type: the message's Type alone, or its Aggregate and Type with a dot
// between them, which comes first. The payload is decoded as JSON into a T; members that T does not
// have are ignored. A payload that cannot be decoded into a T makes the message a dead letter:
// another attempt would not change that. If T is Message or *Message, nothing is decoded: that is
// for a tombstone, which has an empty payload, and for what is not JSON. A type that has a handler
// already is a mistake of the program: On panics.
func On[T, Tx any](r *Router[Tx], eventType string, handle func(ctx context.Context, tx Tx, event T) error) {
	if r.handlers[eventType] != nil {
		panic("inbox: the type " + eventType + " has two handlers")
	}
	r.handlers[eventType] = func(ctx context.Context, tx Tx, m Message) error {
		var event T
		switch whole := any(&event).(type) {
		case *Message:
			*whole = m
		case **Message:
			*whole = &m
		default:
			if err := json.Unmarshal(m.Payload, &event); err != nil {
				return permanentf("decode the payload of %q as %T: %w", eventType, event, err)
			}
		}
		return handle(context.WithValue(ctx, messageKey{}, m), tx, event)
	}
}

type messageKey struct{}

// MessageOf returns the message that a handler of On was called for, with its key, id and headers.
// ctx is the handler's.
func MessageOf(ctx context.Context) Message {
	m, _ := ctx.Value(messageKey{}).(Message)
	return m
}

// Handle is the Handler, or HandlerSQL, to give to Config. It calls the handler of the message's
// type.
func (r *Router[Tx]) Handle(ctx context.Context, tx Tx, m Message) error {
	for _, eventType := range []string{m.Aggregate + "." + m.Type, m.Type} {
		if handle := r.handlers[eventType]; handle != nil {
			return handle(ctx, tx, m)
		}
	}
	if r.unknown == Ignore {
		return nil
	}
	return permanentf("there is no handler for the type %q of %q", m.Type, m.Aggregate)
}
