// Which topics there are.

package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// existing waits until there is a topic to read, and returns all of them with their partitions.
func (c *Consumer) existing(ctx context.Context, k *cluster) (map[string][]int, error) {
	found, err := k.partitions(ctx, k.topics...)
	if err != nil {
		return nil, err
	}
	for _, topic := range c.cfg.Topics {
		if found[topic] == nil {
			c.log.Warn("a topic does not exist yet, it is read as soon as it does", "topic", topic)
		}
	}
	return found, nil
}

// watch ends a membership when topics or partitions come or go: who joins again gets them.
func (c *Consumer) watch(ctx context.Context, k *cluster, known map[string][]int, end context.CancelCauseFunc) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now, err := k.partitions(ctx, k.topics...)
		if err != nil {
			continue // reading says it
		}
		for _, topic := range k.topics {
			if len(now[topic]) != len(known[topic]) {
				end(fmt.Errorf("%s: %w", topic, errTopics))
				return
			}
		}
	}
}

// former are the retry topics of levels that the service does not have any more. They are read until
// somebody deletes them.
func (c *Consumer) former(ctx context.Context) ([]string, error) {
	k := c.connect(nil)
	defer k.close()
	var found []string
	var err error
	for _, broker := range c.cfg.Brokers {
		found, err = c.formerOf(ctx, k, broker)
		if err == nil {
			return found, nil
		}
	}
	return nil, err
}

func (c *Consumer) formerOf(ctx context.Context, k *cluster, broker string) ([]string, error) {
	conn, err := k.dialer.DialContext(ctx, "tcp", broker)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", broker, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	all, err := conn.ReadPartitions()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var found []string
	for _, p := range all {
		if c.isOwn(p.Topic) && !slices.Contains(c.ownTopics(), p.Topic) && !slices.Contains(found, p.Topic) {
			found = append(found, p.Topic)
		}
	}
	return found, nil
}
