// The queue of a run that has a consumer from the beginning: every message is kept as it comes,
// with the time.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// tap is a queue and its one consumer, which acknowledges nothing. Its methods may be called beside
// it.
type tap struct {
	*queue
	send *amqp.Channel // for the mark at the end

	mu     sync.Mutex
	got    []tapped
	marked bool
	ended  bool
	want   []byte // scratch space of check
}

// tapped is a message as it came.
type tapped struct {
	id, key string
	body    []byte
	usual   bool  // it has the headers that it should have, and is persistent
	at      int64 // Unix nanoseconds
}

// contestType is the header eventType of both sides: JSON, as Debezium Server has headers.
const contestType = `"created"`

const tapMark = "bench.mark" // type of the message behind which nothing is in the queue

// newTap makes the queue again and consumes it; room is for so many messages.
func (s *rabbitStand) newTap(room int) (_ *tap, err error) {
	q, err := s.newQueue("classic")
	if err != nil {
		return nil, err
	}
	t := &tap{queue: q, got: make([]tapped, 0, room)}
	if t.send, err = q.conn.Channel(); err != nil {
		return nil, errors.Join(fmt.Errorf("open channel: %w", err), q.close())
	}
	deliveries, err := q.ch.Consume(queueName, "bench", true, false, false, false, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("consume: %w", err), q.close())
	}
	go t.take(deliveries)
	return t, nil
}

// take ends with the connection.
func (t *tap) take(deliveries <-chan amqp.Delivery) {
	for d := range deliveries {
		at := time.Now().UnixNano()
		t.mu.Lock()
		if d.Type == tapMark {
			t.marked = true
		} else {
			own := 0
			for name := range d.Headers {
				if !isContext(name) {
					own++
				}
			}
			usual := own == 2 && text(d.Headers["eventType"]) == contestType && d.DeliveryMode == amqp.Persistent
			t.got = append(t.got, tapped{id: unquoted(text(d.Headers["id"])), key: d.RoutingKey, body: d.Body, usual: usual, at: at})
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
}

// isContext is true of the headers that Debezium has of its own run, and the relay has not.
func isContext(header string) bool { return strings.HasPrefix(header, "__debezium.context.") }

// unquoted is the text of a header that is JSON, as that of an id is.
func unquoted(s string) string { return strings.Trim(s, `"`) }

// depth is how many messages have come.
func (t *tap) depth() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return 0, errors.New("consume: the broker closed the channel")
	}
	return len(t.got), nil
}

// arrivals are the messages after the first n, in their order.
func (t *tap) arrivals(_ context.Context, n int) ([]checker.Delivery, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []checker.Delivery
	for _, m := range t.got[n:] {
		all = append(all, checker.Delivery{ID: m.id, Key: m.key, At: m.at})
	}
	return all, nil
}

// check compares what has come with the table, when all that is in the queue has.
func (t *tap) check(ctx context.Context, h *history) error {
	if err := t.drain(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.got {
		if i, ok := indexOf(m.id, h.first); ok {
			t.want = appendPayload(t.want[:0], i, h.payload)
			if !bytes.Equal(m.body, t.want) || !m.usual {
				h.altered++
			}
		}
		h.note(m.id, m.key)
	}
	return h.verdict(0)
}

// drain puts a mark at the end of the queue and waits for it.
func (t *tap) drain(ctx context.Context) error {
	if err := t.send.PublishWithContext(ctx, "", queueName, false, false, amqp.Publishing{Type: tapMark}); err != nil {
		return fmt.Errorf("send mark: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the mark at the end of the queue has not come"))
	defer cancel()
	for {
		if _, err := t.depth(); err != nil {
			return err
		}
		t.mu.Lock()
		marked := t.marked
		t.mu.Unlock()
		if marked {
			return nil
		}
		if err := waitUntil(ctx, time.Now().Add(watchEvery)); err != nil {
			return context.Cause(ctx)
		}
	}
}
