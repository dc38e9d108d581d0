// The baseline of a leader's move: a producer of one record after the other that does nothing but
// find the leader again.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// bareEvery is the time between two records of the bare producer. The trial's relay has a record
// for the partition as often.
const bareEvery = 3 * time.Millisecond

// bareProducer writes to partition 0 of a topic, with all acknowledgements, one record at a time.
// When one is refused it asks every 10 ms for another leader and sends it there.
type bareProducer struct {
	topic  string
	leader int
	conns  *brokerConns

	end context.CancelFunc
	all sync.WaitGroup
}

func startBareProducer(ctx context.Context, brokers []string, topic string, leader int) *bareProducer {
	p := &bareProducer{topic: topic, leader: leader, conns: newBrokerConns(brokers)}
	ctx, p.end = context.WithCancel(ctx)
	p.all.Go(func() { p.run(ctx) })
	return p
}

func (p *bareProducer) close() {
	p.end()
	p.all.Wait()
	p.conns.close()
}

func (p *bareProducer) run(ctx context.Context) {
	value := appendPayload(nil, 1, 200)
	next := time.Now()
	for {
		next = next.Add(bareEvery)
		if waitUntil(ctx, next) != nil {
			return
		}
		for asked := (time.Time{}); p.conns.ask(ctx, p.leader, func(c *kafkaserver.KafkaConn) error { return p.produce(ctx, c, value) }) != nil; {
			if waitUntil(ctx, asked.Add(metadataEvery)) != nil { // at once the first time
				return
			}
			asked = time.Now()
			if leader := p.conns.leader(ctx, p.topic, p.leader); leader > 0 {
				p.leader = leader
			}
		}
	}
}

// produce writes one record to partition 0 and returns when all replicas in sync have it.
func (p *bareProducer) produce(ctx context.Context, c *kafkaserver.KafkaConn, value []byte) error {
	const all = -1
	records := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(protocol.Record{
		Time: time.Now(), Key: protocol.NewBytes([]byte("key")), Value: protocol.NewBytes(value),
	})}
	answer, err := kafkaserver.Ask[*produce.Response](ctx, c, &produce.Request{Acks: all, Timeout: 5000, Topics: []produce.RequestTopic{{
		Topic: p.topic, Partitions: []produce.RequestPartition{{Partition: 0, RecordSet: records}},
	}}})
	if err != nil {
		return err
	}
	return kafkaserver.KafkaError(answer.Topics[0].Partitions[0].ErrorCode, "")
}
