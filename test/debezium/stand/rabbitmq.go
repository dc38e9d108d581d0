package stand

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// Queue is bound to all exchanges of a group in a virtual host of its own.
type Queue struct {
	URL     string // of the virtual host
	Version string // of the broker
	channel *amqp.Channel
	got     []amqp.Delivery
}

const queue = "all"

// NewQueue makes the exchanges that a group needs, and the queue.
func NewQueue(t testing.TB, g *cases.Group) *Queue {
	t.Helper()
	q := &Queue{URL: servers.SharedRabbitMQ(t).VHost(t)}
	conn, err := amqp.Dial(q.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	q.Version = fmt.Sprint(conn.Properties["version"])
	if q.channel, err = conn.Channel(); err == nil {
		_, err = q.channel.QueueDeclare(queue, true, false, false, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, exchange := range g.Exchanges() {
		err := q.channel.ExchangeDeclare(exchange, "topic", true, false, false, false, nil)
		if err == nil {
			err = q.channel.QueueBind(queue, "#", exchange, false, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// Records implements Destination.
func (q *Queue) Records(ctx context.Context, ends string, failed func() error) ([]cases.Record, error) {
	var all []cases.Record
	err := Await(ctx, failed, func() (ended bool, err error) {
		all, err = q.Now(ctx)
		return slices.ContainsFunc(q.got, func(m amqp.Delivery) bool { return strings.Contains(headerText(m.Headers["id"]), ends) }), err
	})
	return all, err
}

// Now implements Destination.
func (q *Queue) Now(context.Context) ([]cases.Record, error) {
	for {
		m, ok, err := q.channel.Get(queue, true)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		q.got = append(q.got, m)
	}
	all := []cases.Record{}
	for _, m := range q.got {
		r := cases.Record{Partition: -1, Value: cases.Of(nonNil(m.Body)), Exchange: m.Exchange, RoutingKey: m.RoutingKey, DeliveryMode: m.DeliveryMode}
		r.Key = cases.Of(nil)
		for name, value := range m.Headers {
			r.Headers = append(r.Headers, cases.Header{Name: name, Type: fmt.Sprintf("%T", value), Value: cases.Of(nonNil([]byte(headerText(value))))})
		}
		slices.SortFunc(r.Headers, func(a, b cases.Header) int { return cmp.Compare(a.Name, b.Name) })
		r.Properties = properties(m)
		all = append(all, r)
	}
	return all, nil
}

// properties are the names of all others that are set.
func properties(m amqp.Delivery) string {
	var set []string
	for name, is := range map[string]bool{
		"content-type": m.ContentType != "", "content-encoding": m.ContentEncoding != "", "priority": m.Priority != 0, "correlation-id": m.CorrelationId != "",
		"reply-to": m.ReplyTo != "", "expiration": m.Expiration != "", "message-id": m.MessageId != "", "timestamp": !m.Timestamp.IsZero(), "type": m.Type != "",
		"user-id": m.UserId != "", "app-id": m.AppId != "",
	} {
		if is {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	return strings.Join(set, " ")
}

// headerText is a header's value as text, of whatever type it is.
func headerText(v any) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

// nonNil has no null: RabbitMQ knows none.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
