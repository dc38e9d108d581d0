package servers

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// TestKafkaConsumerFollowsTopics reads a topic that comes later, gets more partitions, and is
// re-created.
func TestKafkaConsumerFollowsTopics(t *testing.T) {
	ctx := await.Context(t)
	k := SharedKafka(t)
	late := "late-" + load.NewUUID()
	topic := k.Topic(t, 1)
	rows := numberedRows(600)
	produceRows(t, k.Brokers(), topic, 0, rows[:100]...)
	c, err := consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: k.Brokers(), Topics: []string{topic, late}})
	await.Must(t, err)
	defer c.Close()
	await.Must(t, c.WaitCount(ctx, 100))

	await.Must(t, k.AddPartitions(ctx, topic, 3))
	produceRows(t, k.Brokers(), topic, 2, rows[100:200]...)
	await.Must(t, k.CreateTopic(ctx, late, 2, 1, nil))
	produceRows(t, k.Brokers(), late, 1, rows[200:300]...)
	await.Must(t, c.Drain(ctx))
	await.Must(t, c.WaitCount(ctx, 300))

	// Made again it is as long as it was, then longer.
	for i := range 2 {
		await.Must(t, k.DeleteTopic(ctx, late))
		await.Must(t, k.CreateTopic(ctx, late, 2, 1, nil))
		produceRows(t, k.Brokers(), late, 1, rows[300+i*100:400+i*100]...)
		await.Must(t, c.WaitCount(ctx, 400+i*100))
	}
	produceRows(t, k.Brokers(), late, 1, rows[500:]...)
	produceRows(t, k.Brokers(), late, 1, rows[500:503]...)
	await.Must(t, c.WaitIDs(ctx, []string{rows[0].ID, rows[599].ID}))
	await.Must(t, c.Drain(ctx))
	if distinct, copies := c.Count(); distinct != 600 || copies != 3 || !c.Connected() {
		t.Fatalf("%d ids and %d duplicates", distinct, copies)
	}
	if v := checker.Check(checker.History{Committed: rows, Deliveries: c.Deliveries(), MaxDuplicates: 3}); v.Err() != nil {
		t.Fatal(v)
	}
	all := c.Deliveries() // in no certain order between the partitions
	d := all[slices.IndexFunc(all, func(d checker.Delivery) bool { return d.ID == rows[299].ID })]
	if d.Key != rows[299].Key || d.Aggregate != "order" || d.Seq != rows[299].Seq || d.From != (kafkaserver.TopicPartition{Topic: late, Partition: 1}) || d.Offset != 99 ||
		d.Position.Commit != inOrder(rows[299]) || d.At == 0 {
		t.Fatalf("delivery is %+v", d)
	}
	await.Must(t, k.DeleteTopic(ctx, late))

	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := c.WaitIDs(short, []string{"never"}); err == nil {
		t.Fatal("an id that never comes has come")
	}
	if _, err := consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: []string{"127.0.0.1:1"}, Topics: []string{topic}}); err == nil {
		t.Fatal("a consumer of no cluster was started")
	}
}

// TestKafkaMarksSeeAnEarlyReport puts an event below and above the ends of a mark.
func TestKafkaMarksSeeAnEarlyReport(t *testing.T) {
	ctx := await.Context(t)
	k := SharedKafka(t)
	topic := k.Topic(t, 2)
	c, err := consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: k.Brokers(), Topics: []string{topic}})
	await.Must(t, err)
	defer c.Close()
	rows := []checker.Row{{ID: "one", Key: "k", Seq: 1}, {ID: "two", Key: "k", Seq: 2}}
	verdict := func() checker.Verdict {
		await.Must(t, c.Drain(ctx))
		return checker.Check(checker.History{Committed: rows[:len(c.Deliveries())], Deliveries: c.Deliveries(), Marks: c.Marks()})
	}
	produceRows(t, k.Brokers(), topic, 1, rows[0])
	await.Must(t, c.MarkFlush(ctx, checker.Mark{Flush: inOrder(rows[0]) + 1}))
	if v := verdict(); v.Err() != nil {
		t.Fatal(v)
	}
	await.Must(t, c.MarkFlush(ctx, checker.Mark{Flush: inOrder(rows[1]) + 1}))
	produceRows(t, k.Brokers(), topic, 1, rows[1])
	if v := verdict(); !slices.Equal(v.FlushAheadOfDelivery, []string{"two"}) || len(v.Lost)+len(v.OutOfOrder) > 0 {
		t.Fatal(v)
	}
}
