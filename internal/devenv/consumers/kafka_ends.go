// The end offsets of logs, asked of the brokers that lead them.

package consumers

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// endOffsets asks for the ends of the logs over connections that it keeps.
type endOffsets struct {
	mu    sync.Mutex
	conns map[string]*kafkaserver.KafkaConn
}

// Of are the ends of all partitions of the topics. A topic that is not there has none; a partition
// without a leader is an error.
func (e *endOffsets) Of(ctx context.Context, opt KafkaConsumerOptions) (_ map[kafkaserver.TopicPartition]int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() {
		if err != nil {
			e.drop()
		}
	}()
	var res *metadata.Response
	for _, addr := range opt.Brokers {
		var conn *kafkaserver.KafkaConn
		if conn, err = e.conn(ctx, addr); err != nil {
			continue
		}
		if res, err = kafkaserver.Ask[*metadata.Response](ctx, conn, &metadata.Request{TopicNames: opt.Topics}); err == nil {
			break
		}
		e.drop()
	}
	if err != nil {
		return nil, err
	}
	leaders := map[string][]kafkaserver.TopicPartition{}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			addr := kafkaserver.BrokerAddr(res, p.LeaderID)
			if addr == "" {
				return nil, fmt.Errorf("%s-%d has no leader", t.Name, p.PartitionIndex)
			}
			leaders[addr] = append(leaders[addr], kafkaserver.TopicPartition{Topic: t.Name, Partition: int(p.PartitionIndex)})
		}
	}
	all := map[kafkaserver.TopicPartition]int64{}
	for addr, partitions := range leaders {
		conn, err := e.conn(ctx, addr)
		if err != nil {
			return nil, err
		}
		ends, err := conn.ListOffsets(ctx, partitions, kafkaserver.LatestOffset)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, ends)
	}
	return all, nil
}

func (e *endOffsets) conn(ctx context.Context, addr string) (_ *kafkaserver.KafkaConn, err error) {
	if c := e.conns[addr]; c != nil {
		return c, nil
	}
	c, err := kafkaserver.DialKafka(ctx, addr)
	if err != nil {
		return nil, err
	}
	if e.conns == nil {
		e.conns = map[string]*kafkaserver.KafkaConn{}
	}
	e.conns[addr] = c
	return c, nil
}

func (e *endOffsets) drop() {
	for _, c := range e.conns {
		c.Close()
	}
	clear(e.conns)
}

func (e *endOffsets) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop()
}
