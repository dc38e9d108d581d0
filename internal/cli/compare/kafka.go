// Reading the topic of one side from Kafka.

package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
)

// topic reads all partitions of a topic, without a group. It writes nothing.
type topic struct {
	pool  *kafkaclient.Pool
	name  string
	parts []part
}

// part is a partition: where to begin, and what was its end when it was opened.
type part struct{ next, end int64 }

const (
	kafkaTimeout = 20 * time.Second // for one answer, connecting included
	kafkaFetch   = 1 << 20          // bytes in one answer; a larger record comes alone
)

func openTopic(ctx context.Context, k *kafka.Settings, name string, fromNow bool) (side, error) {
	opts := kafkaclient.DialOptions{ClientID: "cdc-relay/compare", TLS: k.TLSFiles(), SASL: k.Login()}
	t := &topic{name: name, pool: kafkaclient.NewPool(opts, k.Brokers...)}
	if err := t.locate(ctx, fromNow); err != nil {
		t.close()
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	return t, nil
}

func (t *topic) close() { t.pool.Close() }

func (t *topic) partitions() int { return len(t.parts) }

// locate finds the partitions and their offsets.
func (t *topic) locate(ctx context.Context, fromNow bool) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	all, err := t.pool.Topics(ctx, []string{t.name})
	switch {
	case err != nil:
		return fmt.Errorf("ask for partitions: %w", err)
	case len(all) > 0 && all[0].ErrorCode != 0:
		return kafkago.Error(all[0].ErrorCode)
	case len(all) == 0 || len(all[0].Partitions) == 0:
		return errors.New("the brokers do not know it")
	}
	t.parts = make([]part, len(all[0].Partitions))
	ids := make([]int, len(t.parts))
	for id := range ids {
		ids[id] = id
	}
	ends, err := t.pool.Offsets(ctx, t.name, ids, kafkaclient.After)
	if err != nil {
		return fmt.Errorf("ask for offsets: %w", err)
	}
	begins := ends
	if !fromNow {
		if begins, err = t.pool.Offsets(ctx, t.name, ids, kafkaclient.First); err != nil {
			return fmt.Errorf("ask for offsets: %w", err)
		}
	}
	for id := range t.parts {
		t.parts[id] = part{next: begins[id], end: ends[id]}
	}
	return nil
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
	found, next, err := t.pool.Fetch(asking, t.name, p, at.next, kafkaFetch)
	if err != nil {
		return err
	}
	for i := range found {
		m := kafkaMessage(&found[i])
		m.partition, m.where = p, fmt.Sprintf("%s, partition %d, offset %d", t.name, p, found[i].Offset)
		select {
		case messages <- m:
			at.next = found[i].Offset + 1
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	at.next = next
	return nil
}

func kafkaMessage(r *kafkago.Message) message {
	m := message{time: r.Time.UnixMilli(), key: r.Key, value: r.Value}
	for _, h := range r.Headers {
		m.headers = append(m.headers, header{name: h.Key, value: h.Value})
	}
	return m
}
