// The topic that a run on Kafka fills.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// topic is the topic of a run, and a connection to the broker that leads all of its partitions. It
// is deleted at the end.
type topic struct {
	cluster    *kafkaserver.Kafka
	name       string
	partitions int
	conn       *brokerConn
	want       []byte // scratch space
}

// newTopic makes a topic on the first broker.
func (s *kafkaStand) newTopic(ctx context.Context, partitions int) (_ *topic, err error) {
	t := &topic{cluster: s.cluster, name: fmt.Sprintf("bench-%d", s.nextRun()>>32), partitions: partitions}
	if err = s.cluster.CreateTopic(ctx, t.name, partitions, 1, nil); err != nil {
		return nil, err
	}
	if t.conn, err = dialBroker(s.cluster.Brokers()[0]); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *topic) close() error {
	if t.conn != nil {
		t.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return t.cluster.DeleteTopic(ctx, t.name)
}

// depth is the sum of the end offsets.
func (t *topic) depth() (int, error) {
	ends, err := t.conn.ends(t.name, t.partitions)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, end := range ends {
		n += int(end)
	}
	return n, nil
}

// check reads every partition from its beginning to its end and compares.
func (t *topic) check(ctx context.Context, h *history) error {
	ends, err := t.conn.ends(t.name, t.partitions)
	if err != nil {
		return err
	}
	for p, end := range ends {
		if err := t.read(ctx, p, end, func(m *kafka.Message) { t.take(h, m) }); err != nil {
			return fmt.Errorf("read %s-%d: %w", t.name, p, err)
		}
	}
	return h.verdict(0)
}

// read reads a partition up to an offset.
func (t *topic) read(ctx context.Context, partition int, end int64, take func(*kafka.Message)) error {
	conn, err := kafka.DialLeader(ctx, "tcp", t.cluster.Brokers()[0], t.name, partition)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for next := int64(0); next < end; {
		batch := conn.ReadBatch(1, 8<<20)
		before := next
		for next < end {
			m, err := batch.ReadMessage()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return errors.Join(err, batch.Close())
			}
			take(&m)
			next = m.Offset + 1
		}
		if err := batch.Close(); err != nil {
			return err
		}
		if next == before {
			return fmt.Errorf("no records from offset %d of %d on", next, end)
		}
	}
	return nil
}

// take notes a record in the history, and holds it against what the relay should make of the row.
func (t *topic) take(h *history, m *kafka.Message) {
	headers := map[string]string{}
	for _, header := range m.Headers {
		headers[header.Key] = string(header.Value)
	}
	id := headers["id"]
	if i, ok := indexOf(id, h.first); ok {
		t.want = appendPayload(t.want[:0], i, h.payload)
		own := 4
		if _, has := headers["traceparent"]; has && h.traced {
			own++
		}
		same := bytes.Equal(m.Value, t.want) && len(headers) == own && len(m.Headers) == own && headers["eventType"] == "created" &&
			headers["aggregateType"] == "order" && len(headers["cdc_position"]) == len("0000000000000000-00000000") && !m.Time.IsZero()
		if !same {
			h.altered++
		}
	}
	h.note(id, string(m.Key))
}
