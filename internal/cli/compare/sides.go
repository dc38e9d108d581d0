// How a comparison reads its two sides: a topic of Kafka, or an exchange of RabbitMQ. Neither
// leaves a trace at the broker.

package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// topic is a side on Kafka. It reads all partitions of a topic, without a consumer group.
type topic struct {
	pool   *kafkaclient.Pool
	name   string
	begins map[int]int64 // the offset to begin with, by partition
	ends   map[int]int64 // the end of each partition when the side was opened
	unread atomic.Int32  // partitions that were not read up to that end
}

// The bounds of requests to Kafka.
const (
	kafkaTimeout = 20 * time.Second // for one answer, with connecting
	kafkaFetch   = 1 << 20          // bytes in one answer; a larger record comes alone
)

// openTopic makes a side of a topic. It starts at the end when fromNow is true.
func openTopic(ctx context.Context, k *kafka.Settings, name string, fromNow bool) (side, error) {
	opts := kafkaclient.DialOptions{ClientID: "cdc-relay/compare", TLS: k.TLSFiles(), SASL: k.Login()}
	t := &topic{name: name, pool: kafkaclient.NewPool(opts, k.Brokers...)}
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	if err := t.locate(ctx, fromNow); err != nil {
		t.close()
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	return t, nil
}

func (t *topic) close()       { t.pool.Close() }
func (t *topic) behind() bool { return t.unread.Load() > 0 }

// locate finds the partitions, and the offsets at which to begin.
func (t *topic) locate(ctx context.Context, fromNow bool) error {
	all, err := t.pool.Topics(ctx, []string{t.name})
	switch {
	case err != nil:
		return fmt.Errorf("ask for partitions: %w", err)
	case len(all) > 0 && all[0].ErrorCode != 0:
		return kafkago.Error(all[0].ErrorCode)
	case len(all) == 0 || len(all[0].Partitions) == 0:
		return errors.New("the brokers do not know it")
	}
	var ids []int
	for id := range all[0].Partitions {
		ids = append(ids, id)
	}
	t.unread.Store(int32(len(ids)))
	t.ends, err = t.pool.Offsets(ctx, t.name, ids, kafkaclient.EndOffset)
	if t.begins = t.ends; err == nil && !fromNow {
		t.begins, err = t.pool.Offsets(ctx, t.name, ids, kafkaclient.FirstOffset)
	}
	if err != nil {
		return fmt.Errorf("ask for offsets: %w", err)
	}
	return nil
}

// read implements side. It has a goroutine for each partition.
func (t *topic) read(ctx context.Context, messages chan<- message) error {
	group, ctx := errgroup.WithContext(ctx)
	for partition, next := range t.begins {
		group.Go(func() (err error) {
			for behind := true; ; {
				if behind && next >= t.ends[partition] {
					behind = false
					t.unread.Add(-1)
				}
				if next, err = t.fetch(ctx, partition, next, messages); err != nil {
					return fmt.Errorf("topic %s, partition %d, offset %d: %w", t.name, partition, next, err)
				}
			}
		})
	}
	return group.Wait()
}

// fetch asks for records once, hands them over, and returns the offset to go on with.
func (t *topic) fetch(ctx context.Context, partition int, from int64, messages chan<- message) (next int64, err error) {
	asking, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	found, next, err := t.pool.Fetch(asking, t.name, partition, from, kafkaFetch)
	if err != nil {
		return from, err
	}
	for _, r := range found {
		m := message{where: fmt.Sprintf("%s, partition %d, offset %d", t.name, partition, r.Offset), partition: partition, key: r.Key, value: r.Value}
		for _, h := range r.Headers {
			m.headers = append(m.headers, header{name: h.Key, value: h.Value})
		}
		select {
		case messages <- m:
		case <-ctx.Done():
			return next, ctx.Err()
		}
	}
	return next, nil
}

// exchange is a side on RabbitMQ. It consumes an exclusive queue of its own that is bound to the
// exchange. The broker deletes the queue when the connection ends.
type exchange struct {
	session    *conn.Session
	deliveries <-chan amqp.Delivery
}

const (
	// rabbitPrefetch bounds how many messages the broker sends before earlier ones are taken. While
	// a side is paused, its queue grows at the broker.
	rabbitPrefetch = 100
	rabbitPatience = 20 * time.Second // for one answer
)

// openExchange makes a side of an exchange, bound by the routing keys.
func openExchange(ctx context.Context, s *rabbit.Settings, name string, keys []string) (_ side, err error) {
	d := &conn.Dialer{
		ConnectionName: "cdc-relay/compare", ConfirmTimeout: rabbitPatience, Lanes: 1, TLS: s.TLS.Load("sink.rabbitmq.tls"),
		Logins: s.Logins(), Admit: func(string, string) error { return nil },
	}
	if d.URLs, err = s.Addresses(); err != nil {
		return nil, err
	}
	x := &exchange{}
	if x.session, err = d.Dial(ctx, nil); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rabbitPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { x.session.Kill(ctx.Err()) })()
	if err = x.consume(ctx, name, keys); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// consume declares the queue, binds it and begins to consume it.
func (x *exchange) consume(ctx context.Context, name string, keys []string) error {
	opened, err := x.session.TakeChannel(ctx, conn.Lanes)
	if err != nil {
		return err
	}
	queue, err := opened.AMQP.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return fmt.Errorf("declare an exclusive queue: %w", err)
	}
	for _, key := range keys {
		if err := opened.AMQP.QueueBind(queue.Name, key, name, false, nil); err != nil {
			return fmt.Errorf("bind to exchange %q: %w", name, err)
		}
	}
	if err := opened.AMQP.Qos(rabbitPrefetch, 0, false); err != nil {
		return fmt.Errorf("set prefetch: %w", err)
	}
	x.deliveries, err = opened.AMQP.Consume(queue.Name, "", false, true, false, false, nil)
	return err
}

func (x *exchange) close()       { x.session.Close(2 * time.Second) }
func (x *exchange) behind() bool { return false }

// read implements side. It acknowledges the messages that it has handed over. When the connection
// is lost, the queue and its messages are lost too.
func (x *exchange) read(ctx context.Context, messages chan<- message) error {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-x.deliveries:
			if ok {
				select {
				case messages <- rabbitMessage(&d, n):
				case <-ctx.Done():
				}
				ok = d.Ack(false) == nil
			}
			if !ok {
				return errors.New("the queue is gone with what was in it: " + cmp.Or(x.session.Reason(), "the consumer was cancelled"))
			}
		}
	}
}

func rabbitMessage(d *amqp.Delivery, n int) message {
	m := message{
		routingKey: d.RoutingKey, value: append([]byte{}, d.Body...), // a body is never null
		where: fmt.Sprintf("exchange %q, routing key %q, message %d", d.Exchange, d.RoutingKey, n), headers: rabbitHeaders(d.Headers),
	}
	set := map[string]string{
		"content_type": d.ContentType, "content_encoding": d.ContentEncoding, "correlation_id": d.CorrelationId, "reply_to": d.ReplyTo,
		"expiration": d.Expiration, "message_id": d.MessageId, "type": d.Type, "user_id": d.UserId, "app_id": d.AppId,
		"delivery_mode": strings.TrimPrefix(strconv.Itoa(int(d.DeliveryMode)), "0"), "priority": strings.TrimPrefix(strconv.Itoa(int(d.Priority)), "0"),
	}
	if !d.Timestamp.IsZero() {
		set["timestamp"] = strconv.FormatInt(d.Timestamp.Unix(), 10)
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] != "" {
			m.properties = append(m.properties, header{name: name, value: []byte(set[name])})
		}
	}
	return m
}

// rabbitHeaders returns the headers of an AMQP message sorted by name, because an AMQP table has no
// order. Each has its type, which consumers see.
func rabbitHeaders(table amqp.Table) (headers []header) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		h := header{name: name}
		switch v := table[name].(type) {
		case nil:
			h.kind = "null"
		case string:
			h.kind, h.value = "text", []byte(v)
		case []byte:
			h.kind, h.value = "bytes", append([]byte{}, v...)
		default:
			h.kind = strings.TrimPrefix(fmt.Sprintf("%T", v), "amqp091.")
			h.value = fmt.Appendf(nil, "%#v", v) // keys of a table are sorted
		}
		headers = append(headers, h)
	}
	return headers
}
