// Reading the topic of one side from Kafka.

package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/kafkaguard"
	kafka "github.com/cdc-relay/cdc-relay/internal/sink/kafka/driver"
)

// topic reads all partitions of a topic, without a group. It writes nothing.
type topic struct {
	client    *kafkago.Client
	transport *kafkago.Transport
	name      string
	parts     []part
}

// part is a partition: where to begin, and what was its end when it was opened.
type part struct{ next, end int64 }

const (
	kafkaTimeout = 20 * time.Second // for one answer, connecting included
	kafkaFetch   = 1 << 20          // bytes in one answer; a larger record comes alone
)

func openTopic(ctx context.Context, k *kafka.Settings, name string, fromNow bool) (_ side, err error) {
	dialer := &kafkaguard.Dialer{Dial: (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext, Limit: kafkaguard.FetchLimit}
	transport := &kafkago.Transport{
		Dial: dialer.DialContext, DialTimeout: 10 * time.Second,
		ClientID: "cdc-relay/compare", MetadataTopics: []string{name}, MetadataTTL: 2 * time.Second,
	}
	if files := k.TLSFiles(); files != nil {
		if dialer.TLS, err = files(); err != nil {
			return nil, err
		}
	}
	if read := k.Login(); read != nil {
		login, err := read()
		if err == nil {
			transport.SASL, err = login.NewMechanism()
		}
		if err != nil {
			return nil, err
		}
	}
	t := &topic{name: name, transport: transport, client: &kafkago.Client{Addr: kafkago.TCP(k.Brokers...), Transport: transport}}
	if err := t.locate(ctx, fromNow); err != nil {
		t.close()
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	return t, nil
}

func (t *topic) close() { t.transport.CloseIdleConnections() }

func (t *topic) partitions() int { return len(t.parts) }

// locate finds the partitions and their offsets.
func (t *topic) locate(ctx context.Context, fromNow bool) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	meta, err := t.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{t.name}})
	switch {
	case err != nil:
		return fmt.Errorf("ask for partitions: %w", err)
	case len(meta.Topics) == 0:
		return errors.New("the brokers do not know it")
	case meta.Topics[0].Error != nil:
		return meta.Topics[0].Error
	}
	t.parts = make([]part, len(meta.Topics[0].Partitions))
	ask := func(of func(p int) kafkago.OffsetRequest, take func(*part, kafkago.PartitionOffsets)) error {
		var requests []kafkago.OffsetRequest
		for p := range t.parts {
			requests = append(requests, of(p))
		}
		res, err := t.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{t.name: requests}})
		if err != nil {
			return fmt.Errorf("ask for offsets: %w", err)
		}
		for _, p := range res.Topics[t.name] {
			if p.Error != nil {
				return fmt.Errorf("partition %d: ask for offsets: %w", p.Partition, p.Error)
			}
			take(&t.parts[p.Partition], p)
		}
		return nil
	}
	err = ask(kafkago.LastOffsetOf, func(at *part, p kafkago.PartitionOffsets) { *at = part{p.LastOffset, p.LastOffset} })
	if err == nil && !fromNow {
		err = ask(kafkago.FirstOffsetOf, func(at *part, p kafkago.PartitionOffsets) { at.next = p.FirstOffset })
	}
	return err
}

// read has a goroutine for each partition.
func (t *topic) read(ctx context.Context, messages chan<- message, caughtUp chan<- struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	var behind atomic.Int32 // partitions not read to what was their end
	behind.Store(int32(len(t.parts)))
	for p, at := range t.parts {
		group.Go(func() error {
			return t.follow(ctx, p, at, messages, func() {
				if behind.Add(-1) == 0 {
					close(caughtUp)
				}
			})
		})
	}
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// follow reads one partition, and calls reached at what was its end.
func (t *topic) follow(ctx context.Context, p int, at part, messages chan<- message, reached func()) error {
	for behind := true; ; {
		if behind && at.next >= at.end {
			behind = false
			reached()
		}
		if err := t.fetch(ctx, p, &at, messages); err != nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("topic %s, partition %d, offset %d: %w", t.name, p, at.next, err))
		}
	}
}

// fetch asks once, and moves at past what came.
func (t *topic) fetch(ctx context.Context, p int, at *part, messages chan<- message) error {
	asking, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	ask := func(bytes int64) (*kafkago.FetchResponse, error) {
		return t.client.Fetch(asking, &kafkago.FetchRequest{
			Topic: t.name, Partition: p, Offset: at.next, MinBytes: 1, MaxBytes: bytes, MaxWait: 500 * time.Millisecond,
			IsolationLevel: kafkago.ReadCommitted,
		})
	}
	res, err := ask(kafkaFetch)
	var over *kafkaguard.TooLarge
	if errors.As(err, &over) {
		res, err = ask(1) // one batch alone
	}
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return err
	}
	for {
		r, err := res.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		m, err := kafkaMessage(r)
		if err != nil {
			return err
		}
		if r.Offset < at.next {
			continue // a batch is given as a whole
		}
		m.partition, m.where = p, fmt.Sprintf("%s, partition %d, offset %d", t.name, p, r.Offset)
		select {
		case messages <- m:
			at.next = r.Offset + 1
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if stream, ok := res.Records.(*protocol.RecordStream); ok {
		for _, batch := range stream.Records {
			// of a transaction: it is an offset without a record
			if end, ok := batch.(*protocol.ControlBatch); ok {
				at.next = max(at.next, end.BaseOffset+1)
			}
		}
	}
	return nil
}

// kafkaMessage copies a record, and gives its memory back.
func kafkaMessage(r *kafkago.Record) (m message, err error) {
	m.time = r.Time.UnixMilli()
	if m.key, err = readBytes(r.Key); err == nil {
		m.value, err = readBytes(r.Value)
	}
	for _, h := range r.Headers {
		m.headers = append(m.headers, header{name: h.Key, value: h.Value})
	}
	return m, err
}

func readBytes(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	text, err := protocol.ReadAll(b)
	if text == nil && err == nil {
		text = []byte{} // empty is not null
	}
	return text, errors.Join(err, b.Close())
}
