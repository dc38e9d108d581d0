// How safely the service's own topics keep messages.

package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

const (
	minInSync     = "min.insync.replicas"
	cleanupPolicy = "cleanup.policy"
)

// durability is how many replicas the messages of a topic have, and how many of them have each
// before it is confirmed. 0: as the broker has it.
type durability struct{ replicas, inSync int }

// wanted is the durability of the service's own topics: that of Topics, because a message leaves
// them when it has failed. Where there are none yet it is the broker's.
func (c *Consumer) wanted(ctx context.Context, k *kafkalink.Link) (durability, error) {
	var want durability
	layouts, err := k.Layouts(ctx, c.cfg.Topics...)
	if err != nil {
		return want, err
	}
	request := &kafkago.DescribeConfigsRequest{}
	for topic, l := range layouts {
		want.replicas = max(want.replicas, l.Replicas)
		request.Resources = append(request.Resources, kafkago.DescribeConfigRequestResource{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{minInSync, cleanupPolicy},
		})
	}
	if c.cfg.ReplicationFactor > 0 {
		want.replicas = c.cfg.ReplicationFactor
	}
	if len(layouts) == 0 {
		return want, nil
	}
	answer, err := k.Client.DescribeConfigs(ctx, request)
	if err != nil {
		return want, fmt.Errorf("describe topics: %w", err)
	}
	for _, r := range answer.Resources {
		if r.Error != nil {
			return want, fmt.Errorf("describe topic %s: %w", r.ResourceName, r.Error)
		}
		want.inSync = max(want.inSync, inSyncOf(r))
		for _, e := range r.ConfigEntries {
			if e.ConfigName == cleanupPolicy && strings.Contains(e.ConfigValue, "compact") {
				c.log.Warn("the topic is compacted: events that a later one of their key has replaced before they were processed have no effect, and nobody is told. Set cleanup.policy to delete", "topic", r.ResourceName)
			}
		}
	}
	want.inSync = min(want.inSync, want.replicas) // with more, nothing could be written
	return want, nil
}

func inSyncOf(r kafkago.DescribeConfigResponseResource) int {
	for _, e := range r.ConfigEntries {
		if e.ConfigName == minInSync {
			n, _ := strconv.Atoi(e.ConfigValue) //nolint:errcheck // the broker has it as a number
			return n
		}
	}
	return 0
}

// lacking returns what a topic of the service lacks of Config: then it is refused. What it only
// lacks of Topics is a warning: they may have changed under way, and messages go on.
func (c *Consumer) lacking(r kafkago.DescribeConfigResponseResource, l kafkalink.Layout, want durability) (differ []string) {
	less := func(name string, has, want int) string {
		return fmt.Sprintf("  %s: %s is %d, want %d", r.ResourceName, name, has, want)
	}
	if l.Partitions < c.cfg.Partitions {
		differ = append(differ, less("the number of partitions", l.Partitions, c.cfg.Partitions))
	}
	switch {
	case l.Replicas < c.cfg.ReplicationFactor:
		differ = append(differ, less("the replication factor", l.Replicas, c.cfg.ReplicationFactor))
	case l.Replicas < want.replicas:
		c.log.Warn("a topic of the service has fewer replicas than its Topics: raise it with kafka-reassign-partitions.sh", "topic", r.ResourceName, "has", l.Replicas, "want", want.replicas)
	}
	if has := inSyncOf(r); has < min(want.inSync, l.Replicas) {
		c.log.Warn("a topic of the service confirms with fewer replicas than its Topics: raise "+minInSync, "topic", r.ResourceName, "has", has, "want", want.inSync)
	}
	return differ
}
