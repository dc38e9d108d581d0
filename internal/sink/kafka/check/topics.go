// What `check` asks about topics: partitions, leaders, replicas, sizes, and the right to write.

package check

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

const (
	topicResource = 2 // of DescribeConfigs (org.apache.kafka.common.config.ConfigResource.Type)
	// org.apache.kafka.common.acl.AclOperation.WRITE, a bit of the authorized operations
	writeOperation = 4

	MaxTopics = 20 // of a template, that are examined
)

// topics examines the topic of all events, or the existing topics of a template.
func (e *examination) topics(ctx context.Context) []sink.Finding {
	name, constant := e.topicName.Constant()
	asked := []string{name}
	if !constant {
		name, asked = e.topicName.String(), nil // nil is all that this user may describe
	}
	res, err := conn.RoundTripAs[*metadata.Response](ctx, e.conn, client.ControlTimeout, &metadata.Request{
		TopicNames: asked, IncludeTopicAuthorizedOperations: true,
	})
	switch {
	case err != nil:
		return []sink.Finding{{Name: record.TopicName(name), Detail: "no answer: " + conn.OneLine(err), Fix: e.fixSilence()}}
	case constant && len(res.Topics) == 1:
		return e.examine(ctx, res.Topics)
	}
	for _, t := range res.Topics {
		e.existing = append(e.existing, t.Name)
	}
	return e.fitting(ctx, res.Topics)
}

// fitting examines the topics that an event can name by the template, the first of them by name.
// Which ones the events name is unknown: one that can be written to is enough.
func (e *examination) fitting(ctx context.Context, all []metadata.ResponseTopic) []sink.Finding {
	template := e.topicName.String()
	fits := pattern(template)
	topics := slices.DeleteFunc(all, func(t metadata.ResponseTopic) bool { return t.IsInternal || !fits.MatchString(t.Name) })
	if len(topics) == 0 {
		return []sink.Finding{{
			Name: record.TopicName(template), Warn: true,
			Detail: "there is no such topic that this user may describe; events wait until theirs is there",
			Fix:    e.createCommand(example(template)) + "; or " + e.grantCommand(example(template)),
		}}
	}
	slices.SortFunc(topics, func(a, b metadata.ResponseTopic) int { return cmp.Compare(a.Name, b.Name) })
	found := e.examine(ctx, topics[:min(len(topics), MaxTopics)])
	usable := slices.ContainsFunc(found, func(f sink.Finding) bool { return f.OK || f.Warn })
	for i := range found {
		found[i].Warn = !found[i].OK && (found[i].Warn || usable)
	}
	// topics that are made from keys are shown as their template, so all of them look the same
	found = slices.Compact(found)
	if more := len(topics) - MaxTopics; more > 0 {
		found = append(found, sink.Finding{Name: record.TopicName(template), OK: true, Detail: fmt.Sprintf("there are %d more topics like these: not examined", more)})
	}
	return found
}

// placeholder is one part of a template that differs from event to event.
var placeholder = lazy.Regexp(`\{[^{}]*\}`)

// pattern is what the names of a template have in common.
func pattern(template string) *regexp.Regexp {
	constant := placeholder().Split(template, -1)
	for i, text := range constant {
		constant[i] = regexp.QuoteMeta(text)
	}
	return regexp.MustCompile("^" + strings.Join(constant, ".*") + "$")
}

// example is a name of the template, with capitals for what is to be filled in.
func example(template string) string {
	return placeholder().ReplaceAllStringFunc(template, func(p string) string {
		return strings.ToUpper(strings.TrimPrefix(strings.Trim(p, "{}"), "column:"))
	})
}

// examine checks topics, one finding each.
func (e *examination) examine(ctx context.Context, topics []metadata.ResponseTopic) []sink.Finding {
	all := e.settings(ctx, topics)
	var found []sink.Finding
	for i := range topics {
		found = append(found, e.topic(&topics[i], all[topics[i].Name]))
	}
	return found
}

// topic checks a topic by its metadata and settings. It writes nothing, not even to see whether
// that is allowed.
func (e *examination) topic(t *metadata.ResponseTopic, set settings) sink.Finding {
	// The name in commands. For a topic that is made from keys, which are not shown, it is an
	// example.
	name := t.Name
	if e.layout.Personal {
		name = example(e.topicName.String())
	}
	f := sink.Finding{Name: record.TopicName(e.layout.Shown(t.Name))}
	switch code := kafkago.Error(t.ErrorCode); {
	case code == kafkago.UnknownTopicOrPartition:
		f.Detail, f.Fix = "does not exist", e.createCommand(name)
		return f
	case code == kafkago.TopicAuthorizationFailed:
		f.Detail, f.Fix = conn.ErrorText(t.ErrorCode, ""), e.grantCommand(name)
		return f
	case code != 0 && len(t.Partitions) == 0:
		f.Detail, f.Fix = conn.ErrorText(t.ErrorCode, ""), "see what the brokers know of it: "+e.describeCommand(name)
		return f
	case writingDenied(t.TopicAuthorizedOperations):
		f.Detail, f.Fix = "exists, and this user may not write to it", e.grantCommand(name)
		return f
	}
	replicas, inSync, leaderless := shape(t.Partitions)
	f.Detail = fmt.Sprintf("%d partitions, %d replicas%s", len(t.Partitions), replicas, set)
	switch least := set.number("min.insync.replicas"); {
	case leaderless > 0:
		f.Detail += fmt.Sprintf("; partitions without a leader: %d", leaderless)
		f.Fix = e.fixLagging(t, name)
	case replicas < least:
		f.Detail += "; a partition can never have that many in sync, and takes nothing"
		f.Fix = "give it more replicas by kafka-reassign-partitions.sh, or: " + e.minInSyncCommand(name, replicas)
	case inSync < least:
		f.Detail += fmt.Sprintf("; a partition has %d in sync, and takes nothing", inSync)
		f.Fix = e.fixLagging(t, name)
	case replicas == 1 && len(e.cluster.Brokers) > 1:
		f.Warn, f.Detail = true, f.Detail+"; what is confirmed is lost with one broker"
		f.Fix = "give it three replicas by kafka-reassign-partitions.sh; then: " + e.minInSyncCommand(name, 2)
	case replicas > 2 && least == 1:
		f.Warn, f.Detail = true, f.Detail+"; what is confirmed may be on the leader alone"
		f.Fix = e.minInSyncCommand(name, 2)
	default:
		f.OK = true
	}
	return f
}

// writingDenied reads the operations that a user may do with a topic. Brokers that do not report
// them answer 0 or the least number.
func writingDenied(operations int32) bool {
	return operations > 0 && operations&(1<<writeOperation) == 0
}

// shape is the fewest replicas and the fewest of them in sync that any partition has, and how many
// have no leader.
func shape(partitions []metadata.ResponsePartition) (replicas, inSync, leaderless int) {
	for i, p := range partitions {
		if i == 0 {
			replicas, inSync = len(p.ReplicaNodes), len(p.IsrNodes)
		}
		replicas, inSync = min(replicas, len(p.ReplicaNodes)), min(inSync, len(p.IsrNodes))
		if p.LeaderID < 0 {
			leaderless++
		}
	}
	return replicas, inSync, leaderless
}

// settings are a topic's, as name and value; without any, unseen says why.
type settings struct {
	values [][2]string
	unseen string
}

// settings asks for the topics' settings that matter to the relay. It takes a right of its own,
// which the relay itself does not need.
func (e *examination) settings(ctx context.Context, topics []metadata.ResponseTopic) map[string]settings {
	req := new(describeconfigs.Request)
	all := map[string]settings{}
	for _, t := range topics {
		req.Resources = append(req.Resources, describeconfigs.RequestResource{
			ResourceType: topicResource, ResourceName: t.Name, ConfigNames: []string{"min.insync.replicas", "max.message.bytes"},
		})
		all[t.Name] = settings{unseen: "the broker has not answered"}
	}
	res, err := conn.RoundTripAs[*describeconfigs.Response](ctx, e.conn, client.ControlTimeout, req)
	if err != nil {
		return all
	}
	for _, r := range res.Resources {
		var s settings
		switch kafkago.Error(r.ErrorCode) {
		case 0:
		case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed:
			s.unseen = "this user lacks the right DescribeConfigs"
		default:
			s.unseen = conn.ErrorText(r.ErrorCode, r.ErrorMessage)
		}
		for _, entry := range r.ConfigEntries {
			s.values = append(s.values, [2]string{entry.ConfigName, entry.ConfigValue})
		}
		all[r.ResourceName] = s
	}
	return all
}

// number is the value of a setting; 0: unknown.
func (s settings) number(name string) int {
	for _, setting := range s.values {
		if setting[0] == name {
			n, _ := strconv.Atoi(setting[1]) //nolint:errcheck // then it is unknown
			return n
		}
	}
	return 0
}

// String continues a list.
func (s settings) String() string {
	if s.unseen != "" {
		return ", the largest message and min.insync.replicas not visible: " + s.unseen
	}
	var out strings.Builder
	for _, setting := range s.values {
		fmt.Fprintf(&out, ", %s %s", setting[0], setting[1])
	}
	return out.String()
}
