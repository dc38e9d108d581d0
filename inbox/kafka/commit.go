// Committing offsets, and deleting what was handled from the service's own topics.

package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

const (
	// commitEvery is how much of what was handled is delivered again after a crash.
	commitEvery = 200 * time.Millisecond
	// trimEvery is how long handled messages stay in the service's own topics.
	trimEvery = 5 * time.Second
)

// commit commits the offsets that have changed. Brokers refuse that of a former member of the
// group: its messages are delivered to another, and find the records of their events.
func commit(gen *kafkago.Generation, parts []*partition) error {
	offsets := map[string]map[int]int64{}
	for _, p := range parts {
		if to, ok := p.uncommitted(); ok {
			if offsets[p.topic] == nil {
				offsets[p.topic] = map[int]int64{}
			}
			offsets[p.topic][p.id] = to
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	if err := gen.CommitOffsets(offsets); err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", gen.GroupID, err)
	}
	for _, p := range parts {
		if to, ok := offsets[p.topic][p.id]; ok {
			p.committed(to)
		}
	}
	return nil
}

// isFenced is whether the group has given the partitions to others, or is about to.
func isFenced(err error) bool {
	return errors.Is(err, kafkago.RebalanceInProgress) || errors.Is(err, kafkago.IllegalGeneration) || errors.Is(err, kafkago.UnknownMemberId)
}

// commitAlways commits and trims until ctx ends, and once more when nothing is handled any more.
func (c *Consumer) commitAlways(ctx context.Context, k *kafkalink.Link, gen *kafkago.Generation, parts []*partition) error {
	ticker := time.NewTicker(commitEvery)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := commit(gen, parts); err != nil {
			return err
		}
		if time.Since(last) > trimEvery {
			last = time.Now()
			c.trim(ctx, k, parts)
		}
	}
}

// trim deletes the messages before the committed offsets from the service's own topics, which keep
// everything else for ever. When it fails they grow, and nothing else happens.
func (c *Consumer) trim(ctx context.Context, k *kafkalink.Link, parts []*partition) {
	for _, p := range parts {
		to, ok := p.untrimmed()
		if !ok {
			continue
		}
		if err := k.DeleteBefore(ctx, p.topic, p.id, to); err != nil {
			if ctx.Err() == nil {
				c.log.Warn("delete handled messages", "topic", p.topic, "partition", p.id, "error", err)
			}
			return
		}
		p.trimTo(to)
	}
}
