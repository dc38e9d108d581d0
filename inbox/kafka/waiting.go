// How many messages wait, as a metric.

package kafka

import (
	"context"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// reportEvery is how often what waits is counted.
const reportEvery = 15 * time.Second

// report counts what waits until ctx ends.
func (c *Consumer) report(ctx context.Context) {
	k := c.connect(nil)
	defer k.close()
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
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

// countWaiting counts the messages of each topic that the group has not handled, and all dead letters:
// those that were replayed are deleted.
func (c *Consumer) countWaiting(ctx context.Context, k *cluster) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	topics, err := k.partitions(ctx, k.topics...)
	if err != nil {
		return err
	}
	offsets, err := k.client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: c.cfg.Group, Topics: topics})
	if err != nil {
		return err
	}
	dead, err := k.partitions(ctx, c.cfg.DeadLetterTopic)
	if err != nil {
		return err
	}
	topics[c.cfg.DeadLetterTopic] = dead[c.cfg.DeadLetterTopic]
	for topic, partitions := range topics {
		there, err := k.ends(ctx, topic, partitions)
		if err != nil {
			return err
		}
		n := int64(0)
		for _, p := range partitions {
			first := there[p].first
			if i := slices.IndexFunc(offsets.Topics[topic], func(o kafkago.OffsetFetchPartition) bool { return o.Partition == p }); i >= 0 {
				first = max(first, offsets.Topics[topic][i].CommittedOffset)
			}
			n += there[p].after - first
		}
		c.in.Waiting(topic, n)
	}
	return nil
}
