// The replay of dead letters, and the count of messages that wait.

package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
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
	topic := c.deadLetterTopic()
	found, err := k.partitions(ctx, topic)
	if err == nil && found[topic] == nil {
		err = fmt.Errorf("topic %s does not exist", topic)
	}
	if err != nil {
		return 0, fmt.Errorf("find the dead letters: %w", err)
	}
	there, err := k.offsetRanges(ctx, topic, found[topic])
	if err != nil {
		return 0, fmt.Errorf("find the dead letters: %w", err)
	}
	for _, id := range found[topic] {
		limit := f.Limit - n
		if f.Limit > 0 && limit <= 0 {
			break
		}
		of := partitionReplay{c: c, k: k, filter: f, limit: limit, topic: topic, partition: id}
		to, err := of.lastMatch(ctx, there[id])
		if err == nil {
			err = of.replayUpTo(ctx, there[id].first, to)
		}
		n += of.count
		if err != nil {
			return n, fmt.Errorf("replay dead letters: %w", err)
		}
	}
	return n, nil
}

// partitionReplay is the replay of one partition of the dead-letter topic.
type partitionReplay struct {
	c         *Consumer
	k         *link
	filter    inbox.ReplayFilter
	limit     int // 0 or less means no limit
	topic     string
	partition int
	count     int
}

// lastMatch returns the offset after the last dead letter to replay, or the first offset when there
// is none.
func (r *partitionReplay) lastMatch(ctx context.Context, e offsetRange) (int64, error) {
	to, matches := e.first, 0
	err := r.eachDeadLetter(ctx, e.first, e.after, func(m *kafkago.Message) error {
		if r.matches(m) && (r.limit <= 0 || matches < r.limit) {
			matches++
			to = m.Offset + 1
		}
		return nil
	}, nil)
	return to, err
}

// replayUpTo goes through a range of dead letters and deletes it. It publishes those that match to
// the service, and the others at the end of the dead-letter topic.
func (r *partitionReplay) replayUpTo(ctx context.Context, from, to int64) error {
	if from >= to {
		return nil
	}
	return r.eachDeadLetter(ctx, from, to, func(m *kafkago.Message) error {
		matches := r.matches(m)
		next := kafkago.Message{Topic: r.topic, Key: m.Key, Value: m.Value, Time: m.Time, Headers: m.Headers}
		if matches {
			next = r.c.returnOf(m)
		}
		if err := publishRecord(ctx, r.k, next); err != nil {
			return err
		}
		if matches {
			r.count++
		}
		return nil
	}, func(read int64) error { return r.k.DeleteBefore(ctx, r.topic, r.partition, min(read, to)) })
}

// eachDeadLetter calls do for each dead letter of a range. After each part of the range that was
// read it calls done, if that is not nil, with the next offset.
func (r *partitionReplay) eachDeadLetter(ctx context.Context, from, to int64, do func(*kafkago.Message) error, done func(int64) error) error {
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

// matches reports whether a dead letter is to be replayed. A dead letter that names another service
// is left where it is: this service would not need it, and the other one would lose it.
func (r *partitionReplay) matches(m *kafkago.Message) bool {
	of := headerValue(m, headerConsumerService)
	return (of == "" || of == r.c.in.Service()) && r.filter.Matches(headerValue(m, "id"), headerValue(m, "eventType"), inbox.Class(headerValue(m, headerFailureClass)))
}

// reportEvery is the time between two counts of the messages that wait.
const reportEvery = 15 * time.Second

// reportWaiting counts the messages that wait, again and again until ctx ends. It includes the
// retry topics of former levels.
func (c *Consumer) reportWaiting(ctx context.Context) {
	var former []string
	k := c.connect(nil)
	defer func() { k.Close() }()
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		if now, err := c.formerTopics(ctx, k); err == nil && !slices.Equal(now, former) {
			k.Close()
			former, k = now, c.connect(now)
		}
		if err := c.countWaiting(ctx, k); err != nil && ctx.Err() == nil {
			c.log.Debug("count the messages that wait", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// countWaiting reports how many messages of each topic are after the offset that the group has
// committed, or after the first message where the group has none. In the dead-letter topic, which
// the group does not read, it counts all messages: a replay deletes what it has replayed.
func (c *Consumer) countWaiting(ctx context.Context, k *link) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.RequestTimeout)
	defer cancel()
	topics, err := k.partitions(ctx, k.topicsToRead...)
	if err != nil {
		return err
	}
	offsets, err := c.groupOffsets(ctx, k, topics)
	if err != nil {
		return err
	}
	dead, err := k.partitions(ctx, c.deadLetterTopic())
	if err != nil {
		return err
	}
	topics[c.deadLetterTopic()] = dead[c.deadLetterTopic()]
	for topic, partitions := range topics {
		there, err := k.offsetRanges(ctx, topic, partitions)
		if err != nil {
			return err
		}
		n := int64(0)
		for _, p := range partitions {
			n += max(there[p].after-max(there[p].first, offsets[topic][p]), 0)
		}
		c.in.Waiting(topic, n)
	}
	return nil
}
