// A connection to one broker of Kafka, for questions.
package main

import (
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
)

// brokerConn asks one broker, one question at a time. kafka-go's client asks for the offset of each
// partition by itself and answers questions about leaders from what it knows, which may be some
// seconds old. After an error of the connection it is of no more use; a kafka.Error leaves it as it
// is.
type brokerConn struct{ *protocol.Conn }

const brokerPatience = 5 * time.Second

func dialBroker(addr string) (*brokerConn, error) {
	socket, err := net.DialTimeout("tcp", addr, brokerPatience)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	c := &brokerConn{protocol.NewConn(socket, "cdc-relay-bench")}
	answer, err := c.ask(&apiversions.Request{})
	if err != nil {
		c.Close()
		return nil, err
	}
	versions := map[protocol.ApiKey]int16{}
	for _, v := range answer.(*apiversions.Response).ApiKeys {
		api := protocol.ApiKey(v.ApiKey)
		versions[api] = api.SelectVersion(v.MinVersion, v.MaxVersion)
	}
	c.SetVersions(versions)
	return c, nil
}

func (c *brokerConn) ask(question protocol.Message) (protocol.Message, error) {
	if err := c.SetDeadline(time.Now().Add(brokerPatience)); err != nil {
		return nil, fmt.Errorf("ask Kafka for %s: %w", question.ApiKey(), err)
	}
	answer, err := c.RoundTrip(question)
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for %s: %w", question.ApiKey(), err)
	}
	return answer, nil
}

// ends are the end offsets of the partitions 0, 1, 2, … of a topic, which the broker must lead: up
// to there all replicas in sync have the log.
func (c *brokerConn) ends(topic string, partitions int) ([]int64, error) {
	const latest, consumer = -1, -1
	asked := listoffsets.RequestTopic{Topic: topic}
	for p := range partitions {
		asked.Partitions = append(asked.Partitions, listoffsets.RequestPartition{
			Partition: int32(p), CurrentLeaderEpoch: -1, Timestamp: latest,
		})
	}
	answer, err := c.ask(&listoffsets.Request{ReplicaID: consumer, Topics: []listoffsets.RequestTopic{asked}})
	if err != nil {
		return nil, err
	}
	ends := make([]int64, partitions)
	for _, t := range answer.(*listoffsets.Response).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return nil, fmt.Errorf("ask for end of %s-%d: %w", topic, p.Partition, kafka.Error(p.ErrorCode))
			}
			ends[p.Partition] = p.Offset
		}
	}
	return ends, nil
}

// leader is the id of the node that leads partition 0 of a topic, as this broker knows it; below 1:
// none does.
func (c *brokerConn) leader(topic string) (int, error) {
	answer, err := c.ask(&metadata.Request{TopicNames: []string{topic}})
	if err != nil {
		return 0, err
	}
	for _, t := range answer.(*metadata.Response).Topics {
		for _, p := range t.Partitions {
			if p.PartitionIndex == 0 {
				return int(p.LeaderID), nil
			}
		}
	}
	return 0, nil
}

// produce writes one record to partition 0 of a topic and returns when all replicas in sync have
// it.
func (c *brokerConn) produce(topic string, value []byte) error {
	const all = -1
	records := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(protocol.Record{
		Time: time.Now(), Key: protocol.NewBytes([]byte("key")), Value: protocol.NewBytes(value),
	})}
	answer, err := c.ask(&produce.Request{Acks: all, Timeout: int32(brokerPatience.Milliseconds()), Topics: []produce.RequestTopic{{
		Topic: topic, Partitions: []produce.RequestPartition{{Partition: 0, RecordSet: records}},
	}}})
	if err != nil {
		return err
	}
	if code := answer.(*produce.Response).Topics[0].Partitions[0].ErrorCode; code != 0 {
		return fmt.Errorf("produce to %s: %w", topic, kafka.Error(code))
	}
	return nil
}
