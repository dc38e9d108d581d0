// How many messages wait, as a metric.

package kafka

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

// reportEvery is how often what waits is counted.
const reportEvery = 15 * time.Second

// report counts what waits until ctx ends, also in the retry topics of former levels.
func (c *Consumer) report(ctx context.Context) {
	var former []string
	k := c.connect(nil)
	defer func() { k.Close() }()
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		if now, err := c.former(ctx, k); err == nil && !slices.Equal(now, former) {
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

// countWaiting counts the messages of each topic that the group has not handled, and those of the
// dead-letter topic: a replay deletes what it has replayed.
func (c *Consumer) countWaiting(ctx context.Context, k *kafkalink.Link) error {
	ctx, cancel := context.WithTimeout(ctx, kafkalink.RequestTimeout)
	defer cancel()
	topics, err := k.Partitions(ctx, k.Read...)
	if err != nil {
		return err
	}
	offsets, err := k.Committed(ctx, c.group, topics)
	if err != nil {
		return err
	}
	dead, err := k.Partitions(ctx, c.deadLetterTopic())
	if err != nil {
		return err
	}
	topics[c.deadLetterTopic()] = dead[c.deadLetterTopic()]
	for topic, partitions := range topics {
		there, err := k.Ends(ctx, topic, partitions)
		if err != nil {
			return err
		}
		n := int64(0)
		for _, p := range partitions {
			n += max(there[p].After-max(there[p].First, offsets[topic][p]), 0)
		}
		c.in.Waiting(topic, n)
	}
	return nil
}
