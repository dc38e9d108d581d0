// Dead letters go back to the service.

package kafka

import (
	"context"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

// Replay publishes dead letters to the service again, and to no other, as if they had never failed,
// and returns how many. Each is deleted from the dead-letter topic after the broker has confirmed
// it: when Replay is cut short, or runs twice at once, one may be in both or be there twice. The
// event has its effect once all the same, if it was not longer ago than inbox.Config.Keep.
//
// It looks at the dead letters that are there when it begins. Kafka deletes only from the beginning
// of a log: those that the filter does not match and that are before one that it does go to the end
// of the topic.
func (c *Consumer) Replay(ctx context.Context, f inbox.ReplayFilter) (n int, err error) {
	if err := f.Check(); err != nil {
		return 0, err
	}
	k := c.connect(nil)
	defer k.Close()
	if err := k.Reach(ctx); err != nil {
		return 0, fmt.Errorf("replay dead letters: %w", err)
	}
	topic := c.deadLetterTopic()
	found, err := k.Partitions(ctx, topic)
	if err == nil && found[topic] == nil {
		err = fmt.Errorf("topic %s does not exist", topic)
	}
	if err != nil {
		return 0, fmt.Errorf("find the dead letters: %w", err)
	}
	there, err := k.Ends(ctx, topic, found[topic])
	if err != nil {
		return 0, fmt.Errorf("find the dead letters: %w", err)
	}
	for _, id := range found[topic] {
		limit := f.Limit - n
		if f.Limit > 0 && limit <= 0 {
			break
		}
		of := replayed{c: c, k: k, filter: f, limit: limit, topic: topic, partition: id}
		to, err := of.lastMatch(ctx, there[id])
		if err == nil {
			err = of.move(ctx, there[id].First, to)
		}
		n += of.n
		if err != nil {
			return n, fmt.Errorf("replay dead letters: %w", err)
		}
	}
	return n, nil
}

// replayed is the replay of one partition.
type replayed struct {
	c         *Consumer
	k         *kafkalink.Link
	filter    inbox.ReplayFilter
	limit     int // 0 or less: none
	topic     string
	partition int
	n         int
}

// lastMatch is the offset after the last dead letter to replay; the first offset if there is none.
func (r *replayed) lastMatch(ctx context.Context, e kafkalink.Ends) (int64, error) {
	to, matches := e.First, 0
	err := r.each(ctx, e.First, e.After, func(m *kafkago.Message) error {
		if r.matches(m) && (r.limit <= 0 || matches < r.limit) {
			matches++
			to = m.Offset + 1
		}
		return nil
	}, nil)
	return to, err
}

// move publishes the dead letters of a range where they belong, and deletes them.
func (r *replayed) move(ctx context.Context, from, to int64) error {
	if from >= to {
		return nil
	}
	return r.each(ctx, from, to, func(m *kafkago.Message) error {
		matches := r.matches(m)
		next := kafkago.Message{Topic: r.topic, Key: m.Key, Value: m.Value, Time: m.Time, Headers: m.Headers}
		if matches {
			next = r.c.forReturn(m)
		}
		if err := publish(ctx, r.k, next); err != nil {
			return err
		}
		if matches {
			r.n++
		}
		return nil
	}, func(read int64) error { return r.k.DeleteBefore(ctx, r.topic, r.partition, min(read, to)) })
}

// each calls do for the dead letters of a range, and done with the offset after each part of them.
func (r *replayed) each(ctx context.Context, from, to int64, do func(*kafkago.Message) error, done func(int64) error) error {
	for from < to {
		messages, next, err := r.k.Fetch(ctx, r.topic, r.partition, from, 1<<20)
		if err != nil {
			return fmt.Errorf("read %s-%d: %w", r.topic, r.partition, err)
		}
		for i := range messages {
			if messages[i].Offset >= to {
				break
			}
			if err := do(&messages[i]); err != nil {
				return err
			}
		}
		if done != nil {
			if err := done(next); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// matches is whether a dead letter is to be replayed. One that says that it is of another service
// is not: this one would find its record, and the other would never have it again.
func (r *replayed) matches(m *kafkago.Message) bool {
	of := header(m, consumerService)
	return (of == "" || of == r.c.in.Service()) && r.filter.Matches(header(m, "id"), header(m, "eventType"), inbox.Class(header(m, failureClass)))
}
