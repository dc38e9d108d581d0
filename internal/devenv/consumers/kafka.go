// A consumer of all partitions of some topics.

package consumers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// KafkaConsumerOptions says what a KafkaConsumer reads.
type KafkaConsumerOptions struct {
	Brokers []string // where to begin, no login, no TLS
	// from the beginning of their logs; those that are not there yet as soon as they are
	Topics []string
}

// KafkaConsumer reads all partitions of some topics and remembers every record in the order of
// arrival, until Close: each record once, through moves of leaders, restarts of brokers, and
// partitions that are added. When a topic was deleted and made again it begins again with it. It is
// no member of a group and writes nothing.
//
// Delivery has the record's key as Key, and its headers id, aggregateType and cdc_position.
type KafkaConsumer struct {
	arrivals
	opt    KafkaConsumerOptions
	cancel context.CancelFunc
	done   chan struct{}
	places map[kafkaserver.TopicPartition]place // guarded by mu of the arrivals
	marks  []checker.Mark                       // guarded by mu of the arrivals
	ends   endOffsets
}

// place is how far a partition was read.
type place struct {
	next int64              // offset
	last kafkaserver.Record // the one before, to know the log again; Value is not kept
}

// StartKafkaConsumer reads until Close. A cluster that does not answer is an error.
func StartKafkaConsumer(ctx context.Context, opt KafkaConsumerOptions) (*KafkaConsumer, error) {
	if _, err := kafkaserver.ClusterMetadata(ctx, opt.Brokers, opt.Topics); err != nil {
		return nil, fmt.Errorf("start consumer: %w", err)
	}
	c := &KafkaConsumer{arrivals: newArrivals(), opt: opt, done: make(chan struct{}), places: map[kafkaserver.TopicPartition]place{}}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	go c.run(life)
	return c, nil
}

// Close ends the consumer; what it has remembered can still be read.
func (c *KafkaConsumer) Close() {
	c.cancel()
	<-c.done
	c.ends.close()
}

// run reads, in as many sessions as it takes.
func (c *KafkaConsumer) run(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		err := c.session(ctx)
		c.setConnected(false)
		if errors.Is(err, errLayout) {
			continue
		}
		pause, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		<-pause.Done()
		cancel()
	}
}

var errLayout = errors.New("partitions or leaders have changed")

// session reads from the leaders of now until anything changes or fails.
func (c *KafkaConsumer) session(ctx context.Context) error {
	conn, err := c.anyBroker(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	layout, err := c.layout(ctx, conn)
	if err != nil {
		return err
	}
	leaders := map[string][]kafkaserver.TopicPartition{}
	for p, addr := range layout {
		if addr != "" {
			leaders[addr] = append(leaders[addr], p)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for addr, partitions := range leaders {
		group.Go(func() error { return c.follow(ctx, addr, partitions) })
	}
	group.Go(func() error {
		return processes.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
			now, err := c.layout(ctx, conn)
			if err == nil && !maps.Equal(now, layout) {
				err = errLayout
			}
			return false, err
		})
	})
	c.setConnected(true)
	return group.Wait()
}

func (c *KafkaConsumer) anyBroker(ctx context.Context) (*kafkaserver.KafkaConn, error) {
	var errs []error
	for _, addr := range c.opt.Brokers {
		conn, err := kafkaserver.DialKafka(ctx, addr)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// layout is the address of the leader of each partition, "" when there is none now.
func (c *KafkaConsumer) layout(ctx context.Context, conn *kafkaserver.KafkaConn) (map[kafkaserver.TopicPartition]string, error) {
	res, err := kafkaserver.Ask[*metadata.Response](ctx, conn, &metadata.Request{TopicNames: c.opt.Topics})
	if err != nil {
		return nil, err
	}
	layout := map[kafkaserver.TopicPartition]string{}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			layout[kafkaserver.TopicPartition{Topic: t.Name, Partition: int(p.PartitionIndex)}] = kafkaserver.BrokerAddr(res, p.LeaderID)
		}
	}
	return layout, nil
}

// follow reads partitions of one leader until it fails.
func (c *KafkaConsumer) follow(ctx context.Context, addr string, partitions []kafkaserver.TopicPartition) error {
	conn, err := kafkaserver.DialKafka(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := c.resume(ctx, conn, partitions); err != nil {
		return err
	}
	for {
		answers, err := conn.Fetch(ctx, c.after(partitions), kafkaserver.FetchBytes, 500*time.Millisecond)
		if err != nil {
			return err
		}
		if err := c.remember(answers); err != nil {
			return err
		}
	}
}

// after is from where to read next.
func (c *KafkaConsumer) after(partitions []kafkaserver.TopicPartition) []kafkaserver.FetchFrom {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := make([]kafkaserver.FetchFrom, len(partitions))
	for i, p := range partitions {
		from[i] = kafkaserver.FetchFrom{TopicPartition: p, Offset: c.places[p].next}
	}
	return from
}

func (c *KafkaConsumer) remember(answers []kafkaserver.Fetched) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, before := time.Now().UnixNano(), len(c.deliveries)
	var errs []error
	for _, a := range answers {
		errs = append(errs, a.Err)
		at := c.places[a.TopicPartition]
		for i := range a.Records {
			r := &a.Records[i]
			if r.Offset < at.next {
				continue // of the same batch, taken before
			}
			c.add(checker.Delivery{
				ID: plainText(r.Header("id")), Aggregate: c.names.Of(r.Header("aggregateType")), Key: c.names.Of(string(r.Key)),
				Position: ParsePosition(r.Header("cdc_position")), Seq: seqOf(r.Value), At: now,
				Traceparent: r.Header("traceparent"), Replay: r.Has(replayHeader), From: a.TopicPartition, Offset: r.Offset,
			})
			at = place{next: r.Offset + 1, last: *r}
		}
		at.last.Value = nil
		c.places[a.TopicPartition] = at
	}
	if len(c.deliveries) > before {
		c.notify()
	}
	return errors.Join(errs...)
}

// resume settles where to go on in each partition. A log that is shorter than it was, or whose last
// record read is another one now, is that of a topic re-created.
func (c *KafkaConsumer) resume(ctx context.Context, conn *kafkaserver.KafkaConn, partitions []kafkaserver.TopicPartition) error {
	starts, err := conn.ListOffsets(ctx, partitions, kafkaserver.EarliestOffset)
	if err != nil {
		return err
	}
	ends, err := conn.ListOffsets(ctx, partitions, kafkaserver.LatestOffset)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		c.mu.Lock()
		at, known := c.places[p]
		c.mu.Unlock()
		same := known && at.next <= ends[p]
		if same && at.next > starts[p] {
			if same, err = knows(ctx, conn, p, at.last); err != nil {
				return err
			}
		}
		if !same {
			at = place{}
		}
		at.next = max(at.next, starts[p])
		c.mu.Lock()
		c.places[p] = at
		c.mu.Unlock()
	}
	return nil
}

// knows reports whether a record still lies where it was read.
func knows(ctx context.Context, conn *kafkaserver.KafkaConn, p kafkaserver.TopicPartition, want kafkaserver.Record) (bool, error) {
	answers, err := conn.Fetch(ctx, []kafkaserver.FetchFrom{{TopicPartition: p, Offset: want.Offset}}, 1, 0)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(answers[0].Records, func(r kafkaserver.Record) bool {
		return r.Offset == want.Offset && r.Time.Equal(want.Time) && r.Header("id") == want.Header("id")
	}), nil
}

// Drain returns when everything that is in the logs at the moment of the call has arrived. While a
// broker is away it asks again and again.
func (c *KafkaConsumer) Drain(ctx context.Context) error {
	for {
		ends, err := c.ends.Of(ctx, c.opt)
		if err == nil {
			once, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("not all has arrived within 5 s"))
			err = c.Wait(once, func() bool {
				for p, end := range ends {
					if c.places[p].next < end {
						return false
					}
				}
				return true
			})
			cancel()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("drain topics: %w", errors.Join(err, context.Cause(ctx)))
		}
		pause, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		<-pause.Done()
		cancel()
	}
}

// MarkFlush remembers where the logs end, with what was read before (FlushWatch). An event was
// confirmed to the relay only when it lay below the end of its log, so one that was confirmed
// before the report is below these ends.
func (c *KafkaConsumer) MarkFlush(ctx context.Context, m checker.Mark) (err error) {
	c.mu.Lock()
	m.After = len(c.deliveries)
	c.mu.Unlock()
	if m.Ends, err = c.ends.Of(ctx, c.opt); err != nil {
		return fmt.Errorf("mark ends of logs: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks = append(c.marks, m)
	return nil
}

// Marks is what FlushWatch has sampled and where the logs ended then.
func (c *KafkaConsumer) Marks() []checker.Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.marks)
}
