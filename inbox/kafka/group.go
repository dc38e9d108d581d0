// Membership of the consumer group.

package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
)

var (
	errRebalance = errors.New("the group gives its partitions to its members again")
	errTopics    = errors.New("topics or partitions were added or removed")
)

// watchEvery is how soon new topics and partitions are found.
const watchEvery = 3 * time.Second

// formerEvery is after how many of them all topics of the cluster are listed.
const formerEvery = 5

// member joins the group and holds the partitions that it gets, until ctx ends, the topics change
// or an error ends the membership.
func (c *Consumer) member(ctx context.Context, k *kafkalink.Link) error {
	topics, err := c.existing(ctx, k)
	if err != nil {
		return err
	}
	var incomplete atomic.Bool
	group, err := kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
		ID: c.group, Brokers: c.cfg.Brokers, Dialer: k.Dialer, Topics: slices.Sorted(maps.Keys(topics)),
		SessionTimeout: c.cfg.SessionTimeout, RebalanceTimeout: c.cfg.SessionTimeout, HeartbeatInterval: c.cfg.SessionTimeout / 10,
		JoinGroupBackoff: time.Second, StartOffset: kafkago.FirstOffset, GroupBalancers: []kafkago.GroupBalancer{balancer{topics, &incomplete}},
	})
	if err != nil {
		return fmt.Errorf("join group %s: %w", c.group, err)
	}
	left := make(chan struct{})
	leave := sync.OnceFunc(func() {
		go func() {
			defer close(left)
			leave(k, group)
		}()
	})
	defer func() { <-left }()
	defer leave()
	for {
		gen, err := group.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kafkago.RebalanceInProgress):
			continue // another member was quicker: kafka-go joins again
		case err != nil:
			return fmt.Errorf("join group %s: %w", c.group, err)
		}
		if incomplete.Load() {
			return fmt.Errorf("join group %s: a broker does not know all topics and partitions yet", c.group)
		}
		held := make(chan error, 1)
		gen.Start(func(life context.Context) {
			err := c.hold(ctx, life, k, gen, topics)
			if err != nil || ctx.Err() != nil {
				// The generation ends after the group was told to leave: else kafka-go joins again
				// at once. There is no next generation before: Next returns when the group knows.
				leave()
				_, _ = group.Next(context.WithoutCancel(ctx)) //nolint:errcheck // it is ErrGroupClosed
			}
			held <- err
		})
		if err := <-held; err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// leave tells the group, so that others get the partitions at once. It cuts the connections when
// that takes long: joining has no context.
func leave(k *kafkalink.Link, group *kafkago.ConsumerGroup) {
	cut := time.AfterFunc(2*time.Second, k.Cut)
	defer cut.Stop()
	_ = group.Close() //nolint:errcheck // it is always nil
}

// hold has the partitions of one generation. It returns nil when they are given to the members
// again.
func (c *Consumer) hold(ctx, life context.Context, k *kafkalink.Link, gen *kafkago.Generation, topics map[string][]int) error {
	parts, err := c.assigned(ctx, k, gen, topics)
	if isFenced(err) {
		return nil
	}
	if err != nil {
		return err
	}
	held, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(life, func() { end(errRebalance) })()
	var watched sync.WaitGroup
	watched.Go(func() { c.watch(held, k, topics, end) })
	defer watched.Wait()
	defer end(nil)

	committing, committed := context.WithCancel(context.WithoutCancel(ctx))
	defer committed()
	commits := make(chan error, 1)
	go func() {
		err := c.commitAlways(committing, k, gen, parts)
		switch {
		case isFenced(err):
			end(errRebalance)
		case err != nil:
			end(err)
		}
		commits <- err
	}()
	err = c.serveAgain(held, k, parts)
	committed()
	if failed := <-commits; failed == nil {
		// No handler runs any more: what they have done is committed before another process has the
		// partitions.
		if err := commit(gen, parts); err != nil {
			c.log.Debug("commit in the end", "error", err)
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		c.trim(last, k, parts)
	}
	if errors.Is(err, errRebalance) || ctx.Err() != nil {
		return nil
	}
	return err
}

// serveAgain serves sessions until ctx ends or an error that another session would meet, too.
func (c *Consumer) serveAgain(ctx context.Context, k *kafkalink.Link, parts []*partition) error {
	grace := func() time.Duration {
		if errors.Is(context.Cause(ctx), errRebalance) { // a member that takes longer is put out
			return min(c.in.Grace(), c.cfg.SessionTimeout/2)
		}
		return c.in.Grace()
	}
	for pause := (wait.Backoff{}); ; {
		if err := c.in.Ready(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &finalError{err}
		}
		c.in.BrokerUp(true)
		c.receiving.Works()
		began := time.Now()
		err := c.serve(ctx, k, parts, grace)
		if ctx.Err() != nil || endsMembership(err) {
			return err
		}
		c.processing.Failed(err)
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if pause.Pause(ctx) != nil {
			return context.Cause(ctx)
		}
	}
}

// assigned are the partitions of a generation, each with the offset to begin with.
func (c *Consumer) assigned(ctx context.Context, k *kafkalink.Link, gen *kafkago.Generation, topics map[string][]int) ([]*partition, error) {
	var parts []*partition
	for topic, assigned := range gen.Assignments {
		for _, a := range assigned {
			p := &partition{topic: topic, id: a.ID, own: c.isOwn(topic), next: a.Offset, stored: a.Offset, freed: make(chan struct{}, 1)}
			if a.Offset < 0 {
				if err := c.begin(ctx, k, p); err != nil {
					return nil, err
				}
			}
			parts = append(parts, p)
		}
	}
	if slices.ContainsFunc(parts, func(p *partition) bool { return p.stored < 0 }) {
		if err := c.remembered(ctx, k, topics); err != nil {
			return nil, err
		}
		// The first offsets are committed before the first message is handled: see remembered.
		if err := commit(gen, parts); err != nil {
			return nil, err
		}
	}
	c.log.Info("partitions assigned", "group", gen.GroupID, "generation", gen.ID, "partitions", len(parts))
	return parts, nil
}

// begin sets where a partition begins that the group has no offset of: with its first message. The
// offset is committed at once, so that it is noticed when the message is deleted before it was
// processed. kafka-go also says that there is none when the broker has answered with an error, so
// the broker is asked again: a group must not begin again with what it processed long ago.
func (c *Consumer) begin(ctx context.Context, k *kafkalink.Link, p *partition) error {
	offsets, err := k.Committed(ctx, c.group, map[string][]int{p.topic: {p.id}})
	if err != nil {
		return err
	}
	if at, ok := offsets[p.topic][p.id]; ok {
		p.next, p.stored = at, at
		return nil
	}
	there, err := k.Ends(ctx, p.topic, []int{p.id})
	if err != nil {
		return err
	}
	p.next, p.stored = there[p.id].First, -1
	return nil
}
