// The service's own topics as they must be.

package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
)

const anyTime = "9223372036854775807" // no time is too far from the broker's

// settings are those of the service's own topics. They keep every message until it was handled. Its
// time is the event's, and may be any that Topics take.
func (c *Consumer) settings() []kafkago.ConfigEntry {
	return []kafkago.ConfigEntry{
		{ConfigName: cleanupPolicy, ConfigValue: "delete"},
		{ConfigName: "max.message.bytes", ConfigValue: strconv.Itoa(c.cfg.MaxMessageBytes)},
		{ConfigName: "message.timestamp.after.max.ms", ConfigValue: anyTime},
		{ConfigName: "message.timestamp.before.max.ms", ConfigValue: anyTime},
		{ConfigName: "message.timestamp.type", ConfigValue: "CreateTime"},
		{ConfigName: "retention.bytes", ConfigValue: "-1"},
		{ConfigName: "retention.ms", ConfigValue: "-1"},
	}
}

// declare makes the topics that do not exist, and compares those that do.
func (c *Consumer) declare(ctx context.Context, k *kafkalink.Link) error {
	topics := append(c.ownTopics(), c.deadLetterTopic())
	durable, err := c.wanted(ctx, k)
	if err != nil {
		return err
	}
	there, missing, err := c.compare(ctx, k, topics, durable)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return &finalError{fmt.Errorf("the broker has topics of the service otherwise than they must be:\n%s\nset them with kafka-configs.sh --alter --entity-type topics, or change Config", strings.Join(there, "\n"))}
	}
	if len(missing) == 0 {
		return nil
	}
	request := &kafkago.CreateTopicsRequest{}
	for _, topic := range missing {
		request.Topics = append(request.Topics, c.create(topic, durable))
	}
	if durable.replicas == 0 {
		c.log.Warn("none of Topics exists yet: the topics of the service are made with the broker's default.replication.factor and min.insync.replicas", "topics", missing)
	}
	answer, err := k.Client.CreateTopics(ctx, request)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for _, topic := range missing {
		err := answer.Errors[topic]
		if err == nil || errors.Is(err, kafkago.TopicAlreadyExists) { // another process was quicker
			continue
		}
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	c.log.Info("topics created", "topics", missing)
	return await(ctx, k, missing)
}

// create is what a topic is made with.
func (c *Consumer) create(topic string, want durability) kafkago.TopicConfig {
	t := kafkago.TopicConfig{
		Topic: topic, NumPartitions: c.cfg.Partitions, ReplicationFactor: cmp.Or(want.replicas, -1), ConfigEntries: c.settings(),
	}
	if want.inSync > 0 {
		t.ConfigEntries = append(t.ConfigEntries, kafkago.ConfigEntry{ConfigName: minInSync, ConfigValue: strconv.Itoa(want.inSync)})
	}
	return t
}

// await waits until topics that were created are known.
func await(ctx context.Context, k *kafkalink.Link, topics []string) error {
	for pause := (wait.Backoff{}); ; {
		found, err := k.Partitions(ctx, topics...)
		if err != nil || len(found) == len(topics) {
			return err
		}
		if pause.Pause(ctx) != nil {
			return context.Cause(ctx)
		}
	}
}

// compare returns what differs, a line for each setting, and the topics that do not exist.
func (c *Consumer) compare(ctx context.Context, k *kafkalink.Link, topics []string, durable durability) (differ, missing []string, err error) {
	layouts, err := k.Layouts(ctx, topics...)
	if err != nil {
		return nil, nil, err
	}
	request := &kafkago.DescribeConfigsRequest{}
	want := c.settings()
	for _, topic := range topics {
		r := kafkago.DescribeConfigRequestResource{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{minInSync}}
		for _, s := range want {
			r.ConfigNames = append(r.ConfigNames, s.ConfigName)
		}
		request.Resources = append(request.Resources, r)
	}
	answer, err := k.Client.DescribeConfigs(ctx, request)
	if err != nil {
		return nil, nil, fmt.Errorf("describe topics: %w", err)
	}
	for _, r := range answer.Resources {
		switch {
		case errors.Is(r.Error, kafkago.UnknownTopicOrPartition):
			missing = append(missing, r.ResourceName)
		case r.Error != nil:
			return nil, nil, fmt.Errorf("describe topic %s: %w", r.ResourceName, r.Error)
		default:
			differ = append(differ, differences(r, want)...)
			if l, ok := layouts[r.ResourceName]; ok { // else it is so new that it has no leader
				differ = append(differ, c.lacking(r, l, durable)...)
			}
		}
	}
	slices.Sort(differ)
	return differ, missing, nil
}

func differences(r kafkago.DescribeConfigResponseResource, want []kafkago.ConfigEntry) []string {
	var found []string
	for _, has := range r.ConfigEntries {
		i := slices.IndexFunc(want, func(s kafkago.ConfigEntry) bool { return s.ConfigName == has.ConfigName })
		if i < 0 || fits(has.ConfigName, has.ConfigValue, want[i].ConfigValue) {
			continue
		}
		found = append(found, fmt.Sprintf("  %s: %s is %s, want %s", r.ResourceName, has.ConfigName, has.ConfigValue, want[i].ConfigValue))
	}
	return found
}

func fits(name, has, want string) bool {
	if name != "max.message.bytes" {
		return has == want
	}
	h, err := strconv.Atoi(has)
	w, wrong := strconv.Atoi(want)
	return err == nil && wrong == nil && h >= w
}
