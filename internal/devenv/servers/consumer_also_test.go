package servers

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// A consumer of several queues remembers of each message which queue it came from; the order is
// that of each queue alone, marks are about the usual one, and draining drains all.
func TestConsumerOfSeveralQueues(t *testing.T) {
	ctx := await.Context(t)
	vhost := SharedRabbitMQ(t).VHost(t)
	c, err := consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: vhost})
	await.Must(t, err)
	defer c.Close()
	if err := c.Also("nowhere"); err == nil {
		t.Fatal("a queue that is not there is consumed")
	}
	conn, err := amqp.Dial(vhost)
	await.Must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	await.Must(t, err)
	_, err = ch.QueueDeclare("aside", true, false, false, false, nil)
	await.Must(t, err)
	await.Must(t, c.Also("aside"))
	send := func(queue, id string, replay bool) {
		t.Helper()
		headers := amqp.Table{"aggregate_type": "order", "aggregate_id": "k", "cdc_position": "000000000000000A-00000000"}
		if replay {
			headers["cdc_replay"] = "1"
		}
		await.Must(t, ch.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{MessageId: id, Headers: headers, Body: []byte(`{"seq": 2}`)}))
	}
	send("aside", "first", false)
	await.Must(t, c.WaitIDs(ctx, []string{"first"}))
	send("orders", "second", true)
	await.Must(t, c.Drain(ctx))
	var got []checker.Delivery
	for _, d := range c.Deliveries() {
		d.At = 0
		got = append(got, d)
	}
	position := consumers.ParsePosition("000000000000000A-00000000")
	want := []checker.Delivery{
		{ID: "first", Aggregate: "order", Key: "k", Seq: 2, Position: position, From: kafkaserver.TopicPartition{Topic: "aside"}, Aside: true},
		{ID: "second", Aggregate: "order", Key: "k", Seq: 2, Position: position, Replay: true},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("deliveries are %+v, want %+v", got, want)
	}
	await.Must(t, c.MarkFlush(ctx, checker.Mark{Flush: 11, Snapshot: &checker.Snapshot{Min: 3, Max: 9, Running: []uint64{5, 7}}}))
	await.Must(t, processes.Poll(ctx, 10*time.Millisecond, func() (bool, error) { return len(c.Marks()) > 0, nil }))
	if m := c.Marks()[0]; m.Flush != 11 || m.Snapshot.String() != "3:9:5,7" {
		t.Errorf("the mark is %+v", m)
	}
}
