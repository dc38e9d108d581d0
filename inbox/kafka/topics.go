// The service's own topics by name, and which of all there are.

package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

// retryTopic has the messages that wait for so long. The pause is in the name: with other levels
// there are other topics, and what waits in the old ones is still read.
func (c *Consumer) retryTopic(level time.Duration) string {
	return c.in.Service() + ".retry." + inbox.LevelName(level)
}

// returnTopic has the dead letters that a replay returns to the service, and to no other.
func (c *Consumer) returnTopic() string { return c.in.Service() + ".return" }

// deadLetterTopic has what was given up. Alerts know it by this name.
func (c *Consumer) deadLetterTopic() string { return c.in.Service() + ".dlq" }

// ownTopics are those that the service reads besides Config.Topics.
func (c *Consumer) ownTopics() []string {
	own := []string{c.returnTopic()}
	for _, level := range c.in.Levels() {
		if topic := c.retryTopic(level); !slices.Contains(own, topic) {
			own = append(own, topic)
		}
	}
	return own
}

// isOwn is whether a topic is one of those, or was when the service had other levels.
func (c *Consumer) isOwn(topic string) bool {
	_, waits := c.levelOf(topic)
	return waits || topic == c.returnTopic()
}

// levelOf is the pause of a retry topic of the service.
func (c *Consumer) levelOf(topic string) (time.Duration, bool) {
	name, found := strings.CutPrefix(topic, c.in.Service()+".retry.")
	if !found {
		return 0, false
	}
	level, err := time.ParseDuration(name)
	return level, err == nil && inbox.LevelName(level) == name
}

// existing are the topics to read that there are, with their partitions.
func (c *Consumer) existing(ctx context.Context, k *kafkalink.Link) (map[string][]int, error) {
	found, err := k.Partitions(ctx, k.Read...)
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

// watch ends a membership when topics or partitions come or go: who joins again gets them. So it
// reads, too, what waits in the retry topics of a process with other levels that was rolled back.
func (c *Consumer) watch(ctx context.Context, k *kafkalink.Link, known map[string][]int, end context.CancelCauseFunc) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now, err := k.Partitions(ctx, k.Read...)
		if err != nil {
			continue // reading says it
		}
		for _, topic := range k.Read {
			if len(now[topic]) != len(known[topic]) {
				end(fmt.Errorf("%s: %w", topic, errTopics))
				return
			}
		}
		if n%formerEvery != 0 {
			continue
		}
		former, err := c.former(ctx, k)
		for _, topic := range former {
			if err == nil && !slices.Contains(k.Read, topic) {
				end(fmt.Errorf("%s: %w", topic, errTopics))
				return
			}
		}
	}
}

// former are the retry topics of levels that the service does not have any more. They are read
// until somebody deletes them.
func (c *Consumer) former(ctx context.Context, k *kafkalink.Link) ([]string, error) {
	all, err := k.AllTopics(ctx)
	own := c.ownTopics()
	former := slices.DeleteFunc(all, func(topic string) bool { return !c.isOwn(topic) || slices.Contains(own, topic) })
	slices.Sort(former)
	return former, err
}

// connect makes a way to the brokers that also reads more topics.
func (c *Consumer) connect(more []string) *kafkalink.Link {
	return kafkalink.Open(kafkalink.Config{
		Brokers: c.cfg.Brokers, ClientID: c.in.Service(), TLS: c.cfg.TLS, SASL: c.cfg.SASL, MaxMessageBytes: c.cfg.MaxMessageBytes,
		ReadBytes: c.cfg.MaxInFlightBytes,
		Read:      slices.Concat(c.cfg.Topics, c.ownTopics(), more), Write: []string{c.deadLetterTopic()},
	})
}
