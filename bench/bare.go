// The baseline of throughput: a publisher that has its messages at hand and does nothing but
// publish.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// bareWindow is how many messages of a connection are unconfirmed at most.
const bareWindow = 2000

// publisher is one connection with one channel in confirm mode.
type publisher struct {
	conn    *amqp.Connection
	ch      *amqp.Channel
	returns chan amqp.Return
	unacked [bareWindow]*amqp.DeferredConfirmation
	message bareMessage
}

// dialPublisher connects. gathered says that writes are gathered as the relay's are.
func dialPublisher(url string, budget int, gathered bool) (_ *publisher, err error) {
	cfg := amqp.Config{Heartbeat: 10 * time.Second, FrameSize: 131072, Locale: "en_US", Properties: amqp.NewConnectionProperties()}
	if gathered {
		cfg.Dial = dialGathered
	}
	p := &publisher{returns: make(chan amqp.Return, budget+1), message: newBareMessage()}
	if p.conn, err = amqp.DialConfig(url, cfg); err != nil {
		return nil, fmt.Errorf("connect to broker: %w", err)
	}
	if p.ch, err = p.conn.Channel(); err == nil {
		p.ch.NotifyReturn(p.returns)
		err = p.ch.Confirm(false)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("open channel: %w", err)
	}
	return p, nil
}

func (p *publisher) close() {
	_ = p.conn.CloseDeadline(time.Now().Add(5 * time.Second)) // nothing depends on it
}

// publish publishes one connection's share of the events: share, share+of, share+2·of, …
func (p *publisher) publish(ctx context.Context, first int64, keys []string, share, of int) error {
	n := 0
	for i := share; i < len(keys) && ctx.Err() == nil; i += of {
		slot := &p.unacked[n%bareWindow]
		if err := confirmed(*slot); err != nil {
			return err
		}
		var err error
		if *slot, err = p.send(p.message.build(first, i, keys[i])); err != nil {
			return err
		}
		n++
	}
	for _, answer := range p.unacked {
		if err := confirmed(answer); err != nil {
			return err
		}
	}
	select {
	case r := <-p.returns:
		return fmt.Errorf("message came back: %s", r.ReplyText)
	default:
		return ctx.Err()
	}
}

func (p *publisher) send(m *amqp.Publishing) (*amqp.DeferredConfirmation, error) {
	answer, err := p.ch.PublishWithDeferredConfirm(exchange, "order.created", true, false, *m)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return answer, nil
}

func confirmed(answer *amqp.DeferredConfirmation) error {
	if answer != nil && !answer.Wait() {
		return errors.New("publish: not confirmed")
	}
	return nil
}

// bareMessage builds messages of the relay's shape into one scratch space.
type bareMessage struct {
	pub  amqp.Publishing
	body []byte
}

func newBareMessage() bareMessage {
	return bareMessage{pub: amqp.Publishing{
		ContentType: "application/json", DeliveryMode: amqp.Persistent, Type: "created", Headers: amqp.Table{},
	}}
}

// build makes the message of event i; it is good until the next call.
func (m *bareMessage) build(first int64, i int, key string) *amqp.Publishing {
	m.body = appendPayload(m.body[:0], i, payloadSize)
	now := time.Now()
	m.pub.MessageId, m.pub.Timestamp, m.pub.Body = uuid(first+int64(i)), now, m.body
	h := m.pub.Headers
	h["aggregate_type"], h["aggregate_id"], h["timestamp_in_ms"] = "order", key, now.UnixMilli()
	h["cdc_position"] = "0000000000000000-" + padded(i/100*100) // of the same length as the relay's
	return &m.pub
}

// uuid is n as fill writes it.
func uuid(n int64) string {
	var hex [16]byte
	for i := range hex {
		hex[15-i] = "0123456789abcdef"[n>>(4*i)&15]
	}
	return "00000000-0000-0000-" + string(hex[:4]) + "-" + string(hex[4:])
}

func padded(i int) string {
	digits := strconv.Itoa(i)
	return "00000000"[min(8, len(digits)):] + digits
}
