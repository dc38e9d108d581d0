// A question to one broker over a connection of its own. kafka-go's Client would answer from
// metadata that is some seconds old, and keeps connections and goroutines that outlive a test.

package kafkaserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// KafkaConn is a connection to one broker; one request at a time.
type KafkaConn struct{ *protocol.Conn }

// DialKafka connects to the broker at host:port without TLS and agrees on the versions. The caller
// closes the connection.
func DialKafka(ctx context.Context, addr string) (*KafkaConn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	socket, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	c := &KafkaConn{protocol.NewConn(socket, "cdc-relay-devenv")}
	res, err := Ask[*apiversions.Response](ctx, c, &apiversions.Request{})
	if err == nil {
		err = KafkaError(res.ErrorCode, "")
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	versions := map[protocol.ApiKey]int16{}
	for _, v := range res.ApiKeys {
		api := protocol.ApiKey(v.ApiKey)
		versions[api] = api.SelectVersion(v.MinVersion, v.MaxVersion)
	}
	c.SetVersions(versions)
	return c, nil
}

// Ask sends a request and returns its answer. After an error the connection is of no more use.
func Ask[A protocol.Message](ctx context.Context, c *KafkaConn, request protocol.Message) (A, error) {
	var none A
	const patience = 30 * time.Second // a broker that is frozen answers nothing
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return none, fmt.Errorf("ask Kafka for %s: %w", request.ApiKey(), err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	answer, err := c.RoundTrip(request)
	if ctx.Err() != nil {
		return none, fmt.Errorf("ask Kafka for %s: %w", request.ApiKey(), context.Cause(ctx))
	}
	if err != nil {
		return none, fmt.Errorf("ask Kafka for %s: %w", request.ApiKey(), err)
	}
	return answer.(A), nil
}

// askAny asks the first of the brokers that takes a connection and answers.
func askAny[A protocol.Message](ctx context.Context, brokers []string, request protocol.Message) (A, error) {
	var none A
	errs := []error{}
	for _, addr := range brokers {
		answer, err := askOne[A](ctx, addr, request)
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no broker runs"))
	}
	return none, errors.Join(errs...)
}

func askOne[A protocol.Message](ctx context.Context, addr string, request protocol.Message) (A, error) {
	var none A
	c, err := DialKafka(ctx, addr)
	if err != nil {
		return none, err
	}
	defer c.Close()
	return Ask[A](ctx, c, request)
}

// KafkaError is nil for code 0.
func KafkaError(code int16, message string) error {
	switch {
	case code == 0:
		return nil
	case message == "":
		return kafkago.Error(code)
	default:
		return fmt.Errorf("%w (%s)", kafkago.Error(code), message)
	}
}

// retry calls do until it succeeds, or fails for a reason that does not pass by itself, or ctx
// ends.
func (k *Kafka) retry(ctx context.Context, do func() error) error {
	var last error
	err := processes.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		last = do()
		if last == nil || passes(last) {
			return last == nil, nil
		}
		return false, last
	})
	if err != nil && ctx.Err() != nil {
		return errors.Join(err, last)
	}
	return err
}

// passes reports whether an error is one of a cluster on the move, or of a broker that does not
// answer.
func passes(err error) bool {
	var code kafkago.Error
	if !errors.As(err, &code) {
		return true // of the connection
	}
	switch code {
	case kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition, kafkago.RequestTimedOut, kafkago.BrokerNotAvailable,
		kafkago.ReplicaNotAvailable, kafkago.NetworkException, kafkago.NotController, kafkago.KafkaStorageError,
		kafkago.FencedLeaderEpoch, kafkago.UnknownLeaderEpoch, kafkago.OffsetNotAvailable:
		return true
	default:
		return false
	}
}

// ClusterMetadata asks for the topics given; nil: for all of them.
func ClusterMetadata(ctx context.Context, brokers []string, topics []string) (*metadata.Response, error) {
	return askAny[*metadata.Response](ctx, brokers, &metadata.Request{TopicNames: topics})
}

// kafkaLeaders groups the partitions of the topics by the address of their leader.
func kafkaLeaders(ctx context.Context, brokers, topics []string) (map[string][]TopicPartition, error) {
	res, err := ClusterMetadata(ctx, brokers, topics)
	if err != nil {
		return nil, err
	}
	leaders := map[string][]TopicPartition{}
	for _, t := range res.Topics {
		if err := KafkaError(t.ErrorCode, ""); err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Name, err)
		}
		for _, p := range t.Partitions {
			addr := BrokerAddr(res, p.LeaderID)
			if addr == "" {
				return nil, fmt.Errorf("partition %s-%d: %w", t.Name, p.PartitionIndex, kafkago.LeaderNotAvailable)
			}
			leaders[addr] = append(leaders[addr], TopicPartition{Topic: t.Name, Partition: int(p.PartitionIndex)})
		}
	}
	for _, partitions := range leaders {
		slices.SortFunc(partitions, func(a, b TopicPartition) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
	}
	return leaders, nil
}

// BrokerAddr is the host:port of a broker by its node id; "" when the answer does not name it.
func BrokerAddr(res *metadata.Response, id int32) string {
	for _, b := range res.Brokers {
		if b.NodeID == id {
			return net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
		}
	}
	return ""
}

// TopicPartition names a partition of Kafka.
type TopicPartition struct {
	Topic     string
	Partition int
}

// change asks brokers for a change until one has answered, and failed finds no error that stays.
func change[A protocol.Message](ctx context.Context, k *Kafka, request protocol.Message, failed func(A) error) error {
	return k.retry(ctx, func() error {
		answer, err := askAny[A](ctx, k.live(), request)
		if err != nil {
			return err
		}
		return failed(answer)
	})
}
