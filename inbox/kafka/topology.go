// The service's own topics: how they must be set so that no message is lost in them, and how they
// are created and found.

package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

const anyTime = "9223372036854775807" // as far as any time may be from the broker's

type setting struct{ name, value string }

// topicSettings returns the settings of the service's own topics. The topics keep every message
// until it was handled. A message keeps the time of its event, so any time must be allowed that
// Topics allow.
func (c *Consumer) topicSettings() []setting {
	return []setting{
		{cleanupPolicy, "delete"},
		{"max.message.bytes", strconv.Itoa(c.cfg.MaxMessageBytes)},
		{"message.timestamp.after.max.ms", anyTime},
		{"message.timestamp.before.max.ms", anyTime},
		{"message.timestamp.type", "CreateTime"},
		{"retention.bytes", "-1"},
		{"retention.ms", "-1"},
	}
}

// declareTopics creates the topics that do not exist. It returns an error when one that exists has
// other settings.
func (c *Consumer) declareTopics(ctx context.Context, k *link) error {
	topics := append(c.ownTopics(), c.deadLetterTopic())
	durable, err := c.wantedDurability(ctx, k)
	if err != nil {
		return err
	}
	there, missing, err := c.compareTopics(ctx, k, topics, durable)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return &finalError{fmt.Errorf("the broker has topics of the service otherwise than they must be:\n%s\nset them with kafka-configs.sh --alter --entity-type topics, or change Config", strings.Join(there, "\n"))}
	}
	if len(missing) == 0 {
		return nil
	}
	if durable.replicas == 0 {
		c.log.Warn("none of Topics exists yet: the topics of the service are made with the broker's default.replication.factor and min.insync.replicas", "topics", missing)
	}
	req := &createtopics.Request{TimeoutMs: int32(kafkaclient.RequestTimeout.Milliseconds())}
	for _, topic := range missing {
		req.Topics = append(req.Topics, c.newTopicRequest(topic, durable))
	}
	res, err := kafkaclient.AskController[*createtopics.Response](ctx, k.Pool, req)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for _, t := range res.Topics {
		code := kafkago.Error(t.ErrorCode)
		// another process has created it meanwhile
		if code == 0 || code == kafkago.TopicAlreadyExists {
			continue
		}
		return fmt.Errorf("create topic %s: %w: %s", t.Name, code, t.ErrorMessage)
	}
	c.log.Info("topics created", "topics", missing)
	return awaitTopics(ctx, k, missing)
}

// newTopicRequest returns the request that creates a topic with its settings.
func (c *Consumer) newTopicRequest(topic string, want durability) createtopics.RequestTopic {
	t := createtopics.RequestTopic{Name: topic, NumPartitions: int32(c.cfg.Partitions), ReplicationFactor: int16(cmp.Or(want.replicas, -1))}
	for _, s := range c.topicSettings() {
		t.Configs = append(t.Configs, createtopics.RequestConfig{Name: s.name, Value: s.value})
	}
	if want.inSync > 0 {
		t.Configs = append(t.Configs, createtopics.RequestConfig{Name: minInSync, Value: strconv.Itoa(want.inSync)})
	}
	return t
}

// awaitTopics waits until the brokers know topics that were just created.
func awaitTopics(ctx context.Context, k *link, topics []string) error {
	for pause := (work.Backoff{}); ; {
		found, err := k.partitions(ctx, topics...)
		if err != nil || len(found) == len(topics) {
			return err
		}
		if pause.Pause(ctx) != nil {
			return context.Cause(ctx)
		}
	}
}

// compareTopics returns what differs from the settings that the topics must have, one line for each
// setting, and the topics that do not exist.
func (c *Consumer) compareTopics(ctx context.Context, k *link, topics []string, durable durability) (differ, missing []string, err error) {
	there, err := k.topics(ctx, topics)
	if err != nil {
		return nil, nil, err
	}
	want := c.topicSettings()
	names := []string{minInSync}
	for _, s := range want {
		names = append(names, s.name)
	}
	described, err := k.describe(ctx, topics, names)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range described {
		if kafkago.Error(r.ErrorCode) == kafkago.UnknownTopicOrPartition {
			missing = append(missing, r.ResourceName)
			continue
		}
		differ = append(differ, settingDifferences(&r, want)...)
		for i := range there { // a topic that is missing here is so new that it has no leader
			if there[i].Name == r.ResourceName {
				differ = append(differ, c.durabilityDifferences(&r, &there[i], durable)...)
			}
		}
	}
	slices.Sort(differ)
	return differ, missing, nil
}

func settingDifferences(r *describeconfigs.ResponseResource, want []setting) []string {
	var found []string
	for _, has := range r.ConfigEntries {
		i := slices.IndexFunc(want, func(s setting) bool { return s.name == has.ConfigName })
		if i < 0 || isSettingMet(has.ConfigName, has.ConfigValue, want[i].value) {
			continue
		}
		found = append(found, fmt.Sprintf("  %s: %s is %s, want %s", r.ResourceName, has.ConfigName, has.ConfigValue, want[i].value))
	}
	return found
}

func isSettingMet(name, has, want string) bool {
	if name != "max.message.bytes" {
		return has == want
	}
	h, err := strconv.Atoi(has)
	w, wrong := strconv.Atoi(want)
	return err == nil && wrong == nil && h >= w
}

const (
	minInSync     = "min.insync.replicas"
	cleanupPolicy = "cleanup.policy"
)

// durability is how safely a topic keeps messages: its number of replicas, and how many of them
// must have a message before it is confirmed. 0 means the broker's default.
type durability struct{ replicas, inSync int }

// wantedDurability returns the durability that the service's own topics must have. It is that of
// Topics, because a message that fails moves from there. While none of Topics exists it is the
// broker's default.
func (c *Consumer) wantedDurability(ctx context.Context, k *link) (durability, error) {
	var want durability
	there, err := k.topics(ctx, c.cfg.Topics)
	if err != nil {
		return want, err
	}
	var names []string
	for i := range there {
		want.replicas = max(want.replicas, replicaCount(&there[i]))
		names = append(names, there[i].Name)
	}
	if c.cfg.ReplicationFactor > 0 {
		want.replicas = c.cfg.ReplicationFactor
	}
	if len(names) == 0 {
		return want, nil
	}
	described, err := k.describe(ctx, names, []string{minInSync, cleanupPolicy})
	if err != nil {
		return want, err
	}
	for _, r := range described {
		if r.ErrorCode != 0 {
			return want, fmt.Errorf("describe topic %s: %w", r.ResourceName, kafkago.Error(r.ErrorCode))
		}
		want.inSync = max(want.inSync, minInSyncOf(&r))
		for _, e := range r.ConfigEntries {
			if e.ConfigName == cleanupPolicy && strings.Contains(e.ConfigValue, "compact") {
				c.log.Warn("the topic is compacted: events that a later one of their key has replaced before they were processed have no effect, and nobody is told. Set cleanup.policy to delete", "topic", r.ResourceName)
			}
		}
	}
	// with more than there are replicas, nothing could be written
	want.inSync = min(want.inSync, want.replicas)
	return want, nil
}

// describe reads settings of topics. The answer for a topic that does not exist has an error code.
func (k *link) describe(ctx context.Context, topics, names []string) ([]describeconfigs.ResponseResource, error) {
	const topicResource = 2
	req := new(describeconfigs.Request)
	for _, topic := range topics {
		req.Resources = append(req.Resources, describeconfigs.RequestResource{ResourceType: topicResource, ResourceName: topic, ConfigNames: names})
	}
	res, err := kafkaclient.AskAny[*describeconfigs.Response](ctx, k.Pool, req)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	for _, r := range res.Resources {
		if code := kafkago.Error(r.ErrorCode); code != 0 && code != kafkago.UnknownTopicOrPartition {
			return nil, fmt.Errorf("describe topic %s: %w", r.ResourceName, code)
		}
	}
	return res.Resources, nil
}

// replicaCount returns how many replicas every partition of a topic has at least.
func replicaCount(t *metadata.ResponseTopic) int {
	least := len(t.Partitions[0].ReplicaNodes)
	for _, p := range t.Partitions {
		least = min(least, len(p.ReplicaNodes))
	}
	return least
}

func minInSyncOf(r *describeconfigs.ResponseResource) int {
	for _, e := range r.ConfigEntries {
		if e.ConfigName == minInSync {
			n, _ := strconv.Atoi(e.ConfigValue) //nolint:errcheck // the broker writes a number
			return n
		}
	}
	return 0
}

// durabilityDifferences returns in what a topic of the service falls short of Config; the consumer
// then refuses to start. When a topic only falls short of the service's Topics, it logs a warning:
// Topics may have changed meanwhile, and messages must go on.
func (c *Consumer) durabilityDifferences(r *describeconfigs.ResponseResource, t *metadata.ResponseTopic, want durability) (differ []string) {
	less := func(name string, has, want int) string {
		return fmt.Sprintf("  %s: %s is %d, want %d", r.ResourceName, name, has, want)
	}
	if n := len(t.Partitions); n < c.cfg.Partitions {
		differ = append(differ, less("the number of partitions", n, c.cfg.Partitions))
	}
	switch replicas := replicaCount(t); {
	case replicas < c.cfg.ReplicationFactor:
		differ = append(differ, less("the replication factor", replicas, c.cfg.ReplicationFactor))
	case replicas < want.replicas:
		c.log.Warn("a topic of the service has fewer replicas than its Topics: raise it with kafka-reassign-partitions.sh", "topic", r.ResourceName, "has", replicas, "want", want.replicas)
	}
	if has := minInSyncOf(r); has < min(want.inSync, replicaCount(t)) {
		c.log.Warn("a topic of the service confirms with fewer replicas than its Topics: raise "+minInSync, "topic", r.ResourceName, "has", has, "want", want.inSync)
	}
	return differ
}

// watchEvery is how often new topics and partitions are looked for.
const watchEvery = 3 * time.Second

// formerEvery is how many of these looks there are until one lists all topics of the cluster.
const formerEvery = 5

// retryTopic returns the topic of messages that wait for level before their next attempt. The pause
// is part of the name, so other levels have other topics, and the old ones are still read.
func (c *Consumer) retryTopic(level time.Duration) string {
	return c.in.Service() + ".retry." + inbox.LevelName(level)
}

// returnTopic returns the topic of dead letters that a replay returns to this service, and to no
// other.
func (c *Consumer) returnTopic() string { return c.in.Service() + ".return" }

// deadLetterTopic returns the topic of messages that were given up. Alerts know it by this name.
func (c *Consumer) deadLetterTopic() string { return c.in.Service() + ".dlq" }

// ownTopics returns the topics that the service reads besides Config.Topics.
func (c *Consumer) ownTopics() []string {
	own := []string{c.returnTopic()}
	for _, level := range c.in.Levels() {
		if topic := c.retryTopic(level); !slices.Contains(own, topic) {
			own = append(own, topic)
		}
	}
	return own
}

// isOwn reports whether a topic is one of ownTopics, or was one when the service had other levels.
func (c *Consumer) isOwn(topic string) bool {
	_, waits := c.levelOf(topic)
	return waits || topic == c.returnTopic()
}

// levelOf returns the pause of a retry topic of the service, and false for another topic.
func (c *Consumer) levelOf(topic string) (time.Duration, bool) {
	name, found := strings.CutPrefix(topic, c.in.Service()+".retry.")
	if !found {
		return 0, false
	}
	level, err := time.ParseDuration(name)
	return level, err == nil && inbox.LevelName(level) == name
}

// existingTopics returns the topics to read that exist, with their partitions.
func (c *Consumer) existingTopics(ctx context.Context, k *link) (map[string][]int, error) {
	found, err := k.partitions(ctx, k.topicsToRead...)
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

// watchTopics ends a membership when topics or partitions come or go, so that they are read after
// the next join. At every formerEvery-th look it also looks for retry topics of other levels, which
// a version may have left that was rolled back.
func (c *Consumer) watchTopics(ctx context.Context, k *link, known map[string][]int, end context.CancelCauseFunc) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now, err := k.partitions(ctx, k.topicsToRead...)
		if err != nil {
			continue // reading meets the same error, and reports it
		}
		for _, topic := range k.topicsToRead {
			if len(now[topic]) != len(known[topic]) {
				end(fmt.Errorf("%s: %w", topic, errTopics))
				return
			}
		}
		if n%formerEvery != 0 {
			continue
		}
		former, err := c.formerTopics(ctx, k)
		for _, topic := range former {
			if err == nil && !slices.Contains(k.topicsToRead, topic) {
				end(fmt.Errorf("%s: %w", topic, errTopics))
				return
			}
		}
	}
}

// formerTopics returns the retry topics of levels that the service no longer has. They are read
// until somebody deletes them.
func (c *Consumer) formerTopics(ctx context.Context, k *link) (former []string, err error) {
	all, err := k.Topics(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	own := c.ownTopics()
	for _, t := range all {
		if c.isOwn(t.Name) && !slices.Contains(own, t.Name) {
			former = append(former, t.Name)
		}
	}
	slices.Sort(former)
	return former, nil
}

// link is the connections to the brokers during a session.
type link struct {
	*kafkaclient.Pool
	// writers are connections of their own for what is published, which must not wait for a request
	// that waits for messages.
	writers      *kafkaclient.Pool
	topicsToRead []string
}

// Close ends the connections.
func (k *link) Close() {
	k.Pool.Close()
	k.writers.Close()
}

// connect makes the connections. more are topics that are read in addition.
func (c *Consumer) connect(more []string) *link {
	opts := kafkaclient.DialOptions{ClientID: c.in.Service(), Limit: c.cfg.MaxInFlightBytes}
	if c.cfg.TLS != nil {
		opts.TLS = func() (*tls.Config, error) { return c.cfg.TLS, nil }
	}
	if c.cfg.SASL != nil {
		opts.SASL = func(context.Context) (*kafkaclient.SASL, error) { return &kafkaclient.SASL{Own: c.cfg.SASL}, nil }
	}
	open := func() *kafkaclient.Pool { return kafkaclient.NewPool(opts, c.cfg.Brokers...) }
	return &link{open(), open(), slices.Concat(c.cfg.Topics, c.ownTopics(), more)}
}

// topics returns the metadata of those named topics that exist and have partitions.
func (k *link) topics(ctx context.Context, names []string) (found []metadata.ResponseTopic, err error) {
	all, err := k.Topics(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	for _, t := range all {
		switch code := kafkago.Error(t.ErrorCode); {
		case code == kafkago.TopicAuthorizationFailed:
			return nil, fmt.Errorf("describe topic %s: %w", t.Name, code)
		// otherwise it does not exist, or has no leader yet
		case code == 0 && len(t.Partitions) > 0:
			found = append(found, t)
		}
	}
	return found, nil
}

// partitions returns the partitions of each topic that exists.
func (k *link) partitions(ctx context.Context, names ...string) (map[string][]int, error) {
	all, err := k.topics(ctx, names)
	found := map[string][]int{}
	for _, t := range all {
		for _, p := range t.Partitions {
			found[t.Name] = append(found[t.Name], int(p.PartitionIndex))
		}
	}
	return found, err
}

// offsetRange is the offset of the first message of a partition, and the offset after its last one.
type offsetRange struct{ first, after int64 }

func (k *link) offsetRanges(ctx context.Context, topic string, partitions []int) (map[int]offsetRange, error) {
	first, err := k.Offsets(ctx, topic, partitions, kafkaclient.FirstOffset)
	if err != nil {
		return nil, err
	}
	after, err := k.Offsets(ctx, topic, partitions, kafkaclient.EndOffset)
	found := map[int]offsetRange{}
	for id := range after {
		found[id] = offsetRange{first[id], after[id]}
	}
	return found, err
}
