//go:build testall

package kafka_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/kafka"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Processes that come and go while messages are processed: each effect is there once, in the order
// of its key. Whoever is there shares the partitions with the one that comes, which the group's
// answers to its heartbeats tell it, and whoever stays has all of them in the end.
func TestMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.inbox.Concurrency = 2
	var written atomic.Int64
	ctx, cancel := context.WithCancel(r.ctx)
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for i := 0; ctx.Err() == nil; i++ {
			m := event(fmt.Sprintf("%06d", i), fmt.Sprint(i%30))
			m.Topic = r.topic
			if err := r.writer.WriteMessages(r.ctx, m); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			written.Add(1)
		}
	}()
	defer r.run(r.consumer())()
	processed := func(more int) {
		t.Helper()
		before := r.count()
		await.Until(t, "more effects", func() bool { return r.count() >= before+more })
	}
	for range 3 {
		processed(50)
		stop := r.run(r.consumer())
		await.Until(t, "two members with partitions", func() bool { return r.sharing() == 2 })
		processed(100)
		stop()
	}
	cancel()
	<-writing
	await.Until(t, "all effects", func() bool { return int64(r.count()) == written.Load() }, func() any { return fmt.Sprint(r.count(), " of ", written.Load()) })
	r.wantOrder()
	if retries := r.records(r.service + ".retry.1s"); len(retries) > 0 {
		t.Errorf("%d messages have failed: %v", len(retries), headersOf(retries[0]))
	}
}

func (r *rig) count() (n int) {
	r.t.Helper()
	await.Must(r.t, r.pool.QueryRow(r.ctx, "SELECT count(*) FROM effect").Scan(&n))
	return n
}

// Two processes have a message at once, as when one does not know yet that it is out of the group:
// the second waits for the first.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	begun, end := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if calls.Add(1) == 1 {
			close(begun)
			<-end
		}
		return effect(ctx, tx, m)
	}
	r.publish(event("1", "a"), event("2", "a"))
	first := r.run(r.consumer())
	await.Closed(t, "the first handler", begun)
	// The second consumer has another group, and the table in common: it has the partition at once.
	other := r.consumer()
	setGroup(other, r.service+".other")
	second := r.run(other)
	await.Until(t, "the second to wait for the first", func() bool {
		var waits bool
		await.Must(t, r.pool.QueryRow(r.ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
		return waits
	})
	close(end)
	r.wantEffects("1", "2")
	first()
	second()
}

// setGroup makes a consumer a member of another group than its service's, which nobody else can.
func setGroup(c *kafka.Consumer, group string) {
	field := reflect.ValueOf(c).Elem().FieldByName("group")
	reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().SetString(group)
}

// A topic that comes later, more partitions, another topic of the same name, and retries of a level
// that the service has no more: all of it is read.
func TestTopicsChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	later := r.topic + ".later"
	r.kafka.Topics = append(r.kafka.Topics, later)
	r.inbox.Levels = []time.Duration{2 * time.Second}
	failing := atomic.Bool{}
	failing.Store(true)
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.ID == "retried" && failing.Load() {
			return fmt.Errorf("not yet: %w", inbox.ErrTransient)
		}
		return effect(ctx, tx, m)
	}
	stop := r.run(r.consumer())
	r.publish(event("retried", "a"))
	r.wantRecords(r.service+".retry.2s", 1)
	stop()
	failing.Store(false)
	r.inbox.Levels = []time.Duration{time.Second}
	defer r.run(r.consumer())()
	r.wantEffects("retried")

	await.Must(t, r.broker.CreateTopic(r.ctx, later, 1, 1, nil))
	write := func(topic string, partition int, id string) { r.write(topic, partition, event(id, "b")) }
	write(later, 0, "later")
	r.wantEffects("retried", "later")
	await.Must(t, r.broker.AddPartitions(r.ctx, later, 2))
	write(later, 1, "second")
	r.wantEffects("retried", "later", "second")

	await.Must(t, r.broker.DeleteTopic(r.ctx, later))
	await.Until(t, "the consumer to be without it", func() bool { return !slices.Contains(r.assigned(), later) })
	await.Must(t, r.broker.CreateTopic(r.ctx, later, 1, 1, nil))
	write(later, 0, "of the next topic")
	await.Until(t, "its effect", func() bool { return strings.HasSuffix(r.effects(), " of the next topic") })
}

// sharing is how many members of the group have partitions of the topic.
func (r *rig) sharing() (n int) {
	r.t.Helper()
	for _, m := range r.members() {
		if slices.ContainsFunc(m.MemberAssignments.Topics, func(t kafkago.GroupMemberTopic) bool { return t.Topic == r.topic }) {
			n++
		}
	}
	return n
}

func (r *rig) members() []kafkago.DescribeGroupsResponseMember {
	r.t.Helper()
	answer, err := r.client.DescribeGroups(r.ctx, &kafkago.DescribeGroupsRequest{GroupIDs: []string{r.service}})
	await.Must(r.t, err)
	return answer.Groups[0].Members
}

// assigned are the topics of which the members of the group have partitions.
func (r *rig) assigned() (topics []string) {
	r.t.Helper()
	for _, m := range r.members() {
		for _, topic := range m.MemberAssignments.Topics {
			topics = append(topics, topic.Topic)
		}
	}
	return topics
}

// A process with other levels was rolled back: one that has run on reads what waits in the
// retry topic of the other.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	canary := *r
	canary.topic = r.topic + ".canary"
	await.Must(t, r.broker.CreateTopic(r.ctx, canary.topic, 1, 1, nil))
	defer r.run(r.consumer())()
	r.publish(event("1", "a"))
	r.wantEffects("1")
	canary.kafka.Topics = []string{canary.topic}
	canary.inbox.Levels, canary.inbox.Registerer = []time.Duration{3 * time.Second}, prometheus.NewRegistry()
	canary.inbox.Handler = func(context.Context, pgx.Tx, inbox.Message) error { return inbox.ErrTransient }
	stop := canary.run(canary.consumer())
	canary.publish(event("2", "a"))
	former := r.service + ".retry.3s"
	r.wantRecords(former, 1)
	stop()
	r.wantEffects("1", "2")
	r.wantRecords(former, 0)
}

// A handler that does not obey its context does not hold up a stop for ever.
func TestDisobedient(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	begun, end := make(chan struct{}), make(chan struct{})
	r.inbox.Grace = 10 * time.Millisecond
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		close(begun)
		<-end
		return ctx.Err()
	}
	r.publish(event("1", "a"))
	ctx, cancel := context.WithCancel(r.ctx)
	go func() {
		<-begun
		cancel()
	}()
	if err := r.consumer().Run(ctx); err == nil || !strings.Contains(err.Error(), "1 handlers still run") {
		t.Errorf("run: %v", err)
	}
	close(end)
	await.Until(t, "the handler to end", func() bool { return r.pool.Stat().AcquiredConns() == 0 })
}
