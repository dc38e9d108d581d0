// Reading the exchange of one side from RabbitMQ.

package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// exchange consumes an exclusive queue of its own, bound to an exchange. The queue is deleted with
// the connection.
type exchange struct {
	session    *conn.Session
	deliveries <-chan amqp.Delivery
	number     int
}

const (
	// rabbitPrefetch bounds what the broker sends ahead of what was taken. In front of a side that
	// waits, the queue grows at the broker.
	rabbitPrefetch = 100
	rabbitPatience = 20 * time.Second // for one answer
)

func openExchange(ctx context.Context, s *rabbit.Settings, name string, keys []string) (_ side, err error) {
	d := &conn.Dialer{
		ConnectionName: "cdc-relay/compare", ConfirmTimeout: rabbitPatience, Lanes: 1, TLS: s.TLS.Load("sink.rabbitmq.tls"),
		Credentials: s.Credentials(), Admit: func(string, string) error { return nil },
	}
	if d.URLs, err = s.Addresses(); err != nil {
		return nil, err
	}
	session, err := d.Dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	x := &exchange{session: session}
	binding, cancel := context.WithTimeout(ctx, rabbitPatience)
	defer cancel()
	defer context.AfterFunc(binding, func() { session.Kill(binding.Err()) })()
	if err := x.bind(binding, name, keys); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

func (x *exchange) bind(ctx context.Context, name string, keys []string) error {
	opened, err := x.session.Take(ctx, conn.Lanes)
	if err != nil {
		return err
	}
	channel := opened.AMQP
	queue, err := channel.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return fmt.Errorf("declare an exclusive queue: %w", err)
	}
	for _, key := range keys {
		if err := channel.QueueBind(queue.Name, key, name, false, nil); err != nil {
			return fmt.Errorf("bind to exchange %q: %w", name, err)
		}
	}
	if err := channel.Qos(rabbitPrefetch, 0, false); err != nil {
		return fmt.Errorf("set prefetch: %w", err)
	}
	x.deliveries, err = channel.Consume(queue.Name, "", false, true, false, false, nil)
	return err
}

func (x *exchange) close() { x.session.Close(2 * time.Second) }

func (x *exchange) partitions() int { return 0 }

// read acknowledges the messages that it has handed over. When the connection is lost, the queue
// and its messages are lost too.
func (x *exchange) read(ctx context.Context, messages chan<- message, caughtUp chan<- struct{}) error {
	close(caughtUp)
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-x.deliveries:
			if !ok {
				return x.lost(ctx)
			}
			x.number++
			select {
			case messages <- rabbitMessage(&d, x.number):
			case <-ctx.Done():
				return nil
			}
			if d.Ack(false) != nil {
				return x.lost(ctx)
			}
		}
	}
}

// lost is why deliveries ended: ctx, or the connection, or the broker's cancellation.
func (x *exchange) lost(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil // asked for
	default:
	}
	return errors.New("the queue is gone with what was in it: " + cmp.Or(x.session.Reason(), "the consumer was cancelled"))
}

func rabbitMessage(d *amqp.Delivery, number int) message {
	m := message{
		routingKey: d.RoutingKey, value: append([]byte{}, d.Body...), // a body is never null
		where: fmt.Sprintf("exchange %q, routing key %q, message %d", d.Exchange, d.RoutingKey, number), headers: rabbitHeaders(d.Headers),
	}
	numbers := map[string]int64{"delivery_mode": int64(d.DeliveryMode), "priority": int64(d.Priority)}
	if !d.Timestamp.IsZero() {
		numbers["timestamp"] = d.Timestamp.Unix()
	}
	for name, text := range map[string]string{
		"content_type": d.ContentType, "content_encoding": d.ContentEncoding, "correlation_id": d.CorrelationId, "reply_to": d.ReplyTo,
		"expiration": d.Expiration, "message_id": d.MessageId, "type": d.Type, "user_id": d.UserId, "app_id": d.AppId,
	} {
		if text != "" {
			m.properties = append(m.properties, header{name: name, value: []byte(text)})
		}
	}
	for name, n := range numbers {
		if n != 0 {
			m.properties = append(m.properties, header{name: name, value: strconv.AppendInt(nil, n, 10)})
		}
	}
	slices.SortFunc(m.properties, func(a, b header) int { return strings.Compare(a.name, b.name) })
	return m
}

// rabbitHeaders are the headers of an AMQP message by name: a table has no order. Each carries its
// type, which consumers see.
func rabbitHeaders(table amqp.Table) []header {
	headers := make([]header, 0, len(table))
	for name, value := range table {
		h := header{name: name}
		switch v := value.(type) {
		case nil:
			h.kind = "null"
		case string:
			h.kind, h.value = "text", []byte(v)
		case []byte:
			h.kind, h.value = "bytes", append([]byte{}, v...)
		default:
			h.kind = strings.TrimPrefix(fmt.Sprintf("%T", v), "amqp091.")
			text, err := json.Marshal(v) // keys sorted
			if err != nil {
				text = fmt.Append(nil, v)
			}
			h.value = text
		}
		headers = append(headers, h)
	}
	slices.SortFunc(headers, func(a, b header) int { return strings.Compare(a.name, b.name) })
	return headers
}
