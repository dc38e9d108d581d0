package kafka_test

import (
	"errors"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox/kafka"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// Messages that the broker has no more are not skipped: neither those that were deleted before they
// were processed, nor those of a topic that ends before the group's offset.
func TestLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.consumer()
	r.publish(event("1", "a"), event("2", "a"), event("3", "a"))
	k := kafkaclient.NewPool(kafkaclient.DialOptions{}, r.kafka.Brokers...)
	defer k.Close()
	for _, tc := range []struct{ offset, next int64 }{{offset: -1}, {offset: 7}} {
		next := tc.offset
		if tc.offset < 0 {
			stop := r.run(c)
			r.wantOffset(0, 3)
			stop()
			next = 1
			await.Must(t, k.DeleteBefore(r.ctx, r.topic, 0, 2))
		}
		r.commit(0, next)
		err := c.Run(r.ctx)
		var lost *kafka.LostError
		if !errors.As(err, &lost) || lost.Next != next || lost.First != 2 || lost.After != 3 || lost.Topic != r.topic || lost.Group != r.service {
			t.Fatalf("with offset %d: %v", next, err)
		}
	}
	r.commit(0, 2) // as its text says
	r.publish(event("4", "a"))
	defer r.run(c)()
	r.wantEffects("1", "2", "3", "4")
}

// commit sets the group's offset, as kafka-consumer-groups.sh does.
func (r *rig) commit(partition int, offset int64) {
	r.t.Helper()
	answer, err := r.client.OffsetCommit(r.ctx, &kafkago.OffsetCommitRequest{
		GroupID: r.service, GenerationID: -1, Topics: map[string][]kafkago.OffsetCommit{r.topic: {{Partition: partition, Offset: offset}}},
	})
	await.Must(r.t, err)
	await.Must(r.t, answer.Topics[r.topic][0].Error)
}

// The group has no offsets any more, and the service has processed messages: it does not begin
// again with the first ones by itself.
func TestForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.publish(event("1", "a"), event("2", "a"))
	c := r.consumer()
	stop := r.run(c)
	r.wantEffects("1", "2")
	stop()
	answer, err := r.client.DeleteGroups(r.ctx, &kafkago.DeleteGroupsRequest{GroupIDs: []string{r.service}})
	await.Must(t, err)
	await.Must(t, answer.Errors[r.service])
	want := "--group " + r.service + " --topic " + r.topic + " --reset-offsets --to-earliest|--to-latest|--to-datetime"
	if err := c.Run(r.ctx); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("run without offsets: %v\nwant %s", err, want)
	}
	r.commit(0, 2) // as its text says
	r.publish(event("3", "a"))
	defer r.run(c)()
	r.wantEffects("1", "2", "3")
}
