// Messages of Kafka and RabbitMQ in the form that is compared.

package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
)

// kafkaMessage copies a record, and gives its memory back.
func kafkaMessage(r *kafkago.Record) (m compare.Message, err error) {
	m.Time = r.Time.UnixMilli()
	if m.Key, err = readBytes(r.Key); err == nil {
		m.Value, err = readBytes(r.Value)
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, compare.Header{Name: h.Key, Value: h.Value})
	}
	return m, err
}

func readBytes(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	text, err := protocol.ReadAll(b)
	if text == nil && err == nil {
		text = []byte{} // empty is not null
	}
	return text, errors.Join(err, b.Close())
}

func (s *rabbitSide) message(d *amqp.Delivery) compare.Message {
	m := compare.Message{
		Partition: -1, RoutingKey: d.RoutingKey, Value: d.Body, Where: fmt.Sprintf("exchange %q, routing key %q, message %d", d.Exchange, d.RoutingKey, s.number),
		Headers: rabbitHeaders(d.Headers),
	}
	if m.Value == nil {
		m.Value = []byte{} // a body is never null
	}
	for i, exchange := range s.exchanges {
		if d.Exchange == exchange {
			m.ExchangeOrTopic = i
		}
	}
	text := func(name, value string) {
		if value != "" {
			m.Properties = append(m.Properties, compare.Header{Name: name, Value: []byte(value)})
		}
	}
	number := func(name string, n uint8) {
		if n != 0 {
			text(name, strconv.Itoa(int(n)))
		}
	}
	text("content_type", d.ContentType)
	text("content_encoding", d.ContentEncoding)
	number("delivery_mode", d.DeliveryMode)
	number("priority", d.Priority)
	text("correlation_id", d.CorrelationId)
	text("reply_to", d.ReplyTo)
	text("expiration", d.Expiration)
	text("message_id", d.MessageId)
	if !d.Timestamp.IsZero() {
		text("timestamp", strconv.FormatInt(d.Timestamp.Unix(), 10))
	}
	text("type", d.Type)
	text("user_id", d.UserId)
	text("app_id", d.AppId)
	return m
}

// rabbitHeaders are the headers of an AMQP message by name: a table has no order. Each carries its
// type, which consumers see.
func rabbitHeaders(table amqp.Table) []compare.Header {
	headers := make([]compare.Header, 0, len(table))
	for name, value := range table {
		h := compare.Header{Name: name}
		switch v := value.(type) {
		case nil:
			h.Kind = "null"
		case string:
			h.Kind, h.Value = "text", []byte(v)
		case []byte:
			h.Kind, h.Value = "bytes", append([]byte{}, v...)
		default:
			h.Kind = strings.TrimPrefix(fmt.Sprintf("%T", v), "amqp091.")
			text, err := json.Marshal(v) // keys sorted
			if err != nil {
				text = fmt.Append(nil, v)
			}
			h.Value = text
		}
		headers = append(headers, h)
	}
	slices.SortFunc(headers, func(a, b compare.Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}
