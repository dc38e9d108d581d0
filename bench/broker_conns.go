// Connections to all nodes of a cluster of Kafka, some of which do not answer.
package main

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// brokerConns keeps a connection to each node that was asked. It belongs to one goroutine.
type brokerConns struct {
	addrs []string // of the nodes 1, 2, 3, …
	conns map[int]*kafkaserver.KafkaConn
}

func newBrokerConns(addrs []string) *brokerConns {
	return &brokerConns{addrs: addrs, conns: map[int]*kafkaserver.KafkaConn{}}
}

func (b *brokerConns) close() {
	for _, c := range b.conns {
		c.Close()
	}
}

// ask asks a node. After an error that is not the broker's answer the connection is closed.
func (b *brokerConns) ask(ctx context.Context, node int, question func(*kafkaserver.KafkaConn) error) error {
	c := b.conns[node]
	if c == nil {
		var err error
		if c, err = kafkaserver.DialKafka(ctx, b.addrs[node-1]); err != nil {
			return err
		}
		b.conns[node] = c
	}
	err := question(c)
	if code := kafka.Error(0); err != nil && !errors.As(err, &code) {
		c.Close()
		delete(b.conns, node)
	}
	return err
}

// leader is the node that leads partition 0 of a topic as reported by the first that names one
// other than old; 0: none. Node old is not asked.
func (b *brokerConns) leader(ctx context.Context, topic string, old int) int {
	for i := range b.addrs {
		node, leader := i+1, 0
		if node == old {
			continue
		}
		err := b.ask(ctx, node, func(c *kafkaserver.KafkaConn) error {
			res, err := kafkaserver.Ask[*metadata.Response](ctx, c, &metadata.Request{TopicNames: []string{topic}})
			if err != nil {
				return err
			}
			for _, p := range res.Topics[0].Partitions {
				if p.PartitionIndex == 0 {
					leader = int(p.LeaderID)
				}
			}
			return nil
		})
		if err == nil && leader > 0 && leader != old {
			return leader
		}
	}
	return 0
}
