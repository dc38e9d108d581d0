// The topic that a run on Kafka fills.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// topic is the topic of a run, and a connection to the broker that leads all of its partitions. It
// is deleted at the end.
type topic struct {
	cluster    *kafkaserver.Kafka
	name       string
	partitions int
	made       bool
	conn       *kafkaserver.KafkaConn
	want       []byte // scratch space
}

// newTopic makes a topic on the first broker.
func (s *kafkaStand) newTopic(ctx context.Context, partitions int) (*topic, error) {
	t := s.missingTopic(partitions)
	if err := t.make(ctx); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// missingTopic is a topic that is not there yet.
func (s *kafkaStand) missingTopic(partitions int) *topic {
	return &topic{cluster: s.cluster, name: fmt.Sprintf("bench-%d", s.nextRun()>>32), partitions: partitions}
}

func (t *topic) make(ctx context.Context) (err error) {
	if err = t.cluster.CreateTopic(ctx, t.name, t.partitions, 1, nil); err != nil {
		return err
	}
	t.made = true
	t.conn, err = kafkaserver.DialKafka(ctx, t.cluster.Brokers()[0])
	return err
}

func (t *topic) close() error {
	if t.conn != nil {
		t.conn.Close()
	}
	if !t.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return t.cluster.DeleteTopic(ctx, t.name)
}

// ends are the end offsets of the partitions.
func (t *topic) ends(ctx context.Context) (map[kafkaserver.TopicPartition]int64, error) {
	all := make([]kafkaserver.TopicPartition, t.partitions)
	for p := range all {
		all[p] = kafkaserver.TopicPartition{Topic: t.name, Partition: p}
	}
	return t.conn.ListOffsets(ctx, all, kafkaserver.LatestOffset)
}

// depth is the sum of the end offsets.
func (t *topic) depth() (n int, err error) {
	ends, err := t.ends(context.Background())
	for _, end := range ends {
		n += int(end)
	}
	return n, err
}

// check reads the topic and compares.
func (t *topic) check(ctx context.Context, h *history) error {
	if err := t.read(ctx, func(r *kafkaserver.Record) { t.take(h, r) }); err != nil {
		return err
	}
	return h.verdict(0)
}

// read reads every partition from its beginning to its end.
func (t *topic) read(ctx context.Context, take func(*kafkaserver.Record)) error {
	ends, err := t.ends(ctx)
	if err != nil {
		return err
	}
	for p, end := range ends {
		for next := int64(0); next < end; {
			answers, err := t.conn.Fetch(ctx, []kafkaserver.FetchFrom{{TopicPartition: p, Offset: next}}, kafkaserver.FetchBytes, 0)
			if err != nil {
				return err
			}
			before := next
			for i := range answers[0].Records {
				if r := &answers[0].Records[i]; r.Offset >= next {
					take(r)
					next = r.Offset + 1
				}
			}
			if next == before {
				return fmt.Errorf("read %s-%d: no records from offset %d of %d on: %w", t.name, p.Partition, next, end, answers[0].Err)
			}
		}
	}
	return nil
}

// take notes a record in the history, and holds it against what the relay should make of the row.
func (t *topic) take(h *history, r *kafkaserver.Record) {
	id := r.Header("id")
	if i, ok := indexOf(id, h.first); ok {
		t.want = appendPayload(t.want[:0], i, h.payload)
		same := bytes.Equal(r.Value, t.want) && len(r.Headers) == 4 && r.Header("eventType") == "created" &&
			r.Header("aggregateType") == "order" && len(r.Header("cdc_position")) == len("0000000000000000-00000000") && !r.Time.IsZero()
		if !same {
			h.altered++
		}
	}
	h.note(id, string(r.Key))
}
