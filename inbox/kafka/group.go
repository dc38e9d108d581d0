// The membership of the consumer group: how this process gets its partitions, keeps them, and
// commits their offsets.

package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/heartbeat"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/leavegroup"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/segmentio/kafka-go/protocol/offsetfetch"
	"github.com/segmentio/kafka-go/protocol/syncgroup"

	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

var (
	errRebalance = errors.New("the group gives its partitions to its members again")
	errTopics    = errors.New("topics or partitions were added or removed")
)

const (
	// commitEvery is how often offsets are committed. Messages that were handled since the last
	// commit come again after a crash.
	commitEvery = 200 * time.Millisecond
	// deleteEvery is how often handled messages are deleted from the service's own topics.
	deleteEvery = 5 * time.Second
	// leaveTimeout is how long each last request at the end of a membership may take.
	leaveTimeout = 2 * time.Second
)

// membership is this process as a member of the consumer group.
type membership struct {
	c      *Consumer
	k      *link
	topics map[string][]int // the topics that it reads, with their partitions
	id     string           // the member id that the coordinator has given it; "" before
}

// generation is the share that this member has, until a member comes or goes and all partitions are
// given again.
type generation struct {
	*membership
	number   int32
	assigned map[string][]int // the partitions of this member
}

// runMembership joins the group and holds the partitions that it gets. It ends when ctx ends, when
// the topics change, or with an error.
func (c *Consumer) runMembership(ctx context.Context, k *link) error {
	topics, err := c.existingTopics(ctx, k)
	if err != nil {
		return err
	}
	m := &membership{c: c, k: k, topics: topics}
	defer m.leaveGroup(ctx)
	for {
		g, err := m.joinGroup(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kafkago.UnknownMemberId):
			m.id = ""
			continue
		case isFenced(err):
			continue // another member joined meanwhile
		case err != nil:
			return fmt.Errorf("join group %s: %w", c.group, err)
		}
		if err := c.holdPartitions(ctx, g); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// isFenced reports whether the group has given the partitions to other members, or is about to.
func isFenced(err error) bool {
	return errors.Is(err, kafkago.RebalanceInProgress) || errors.Is(err, kafkago.IllegalGeneration) || errors.Is(err, kafkago.UnknownMemberId)
}

func askGroup[R protocol.Message](ctx context.Context, m *membership, req protocol.Message, codeOf func(R) int16) (R, error) {
	// a member that joins gets its answer when the others have joined
	return kafkaclient.AskCoordinator(ctx, m.k.Pool, m.c.group, m.c.cfg.SessionTimeout+kafkaclient.RequestTimeout, req, codeOf)
}

// joinGroup joins the group: the coordinator makes a new generation with this member in it.
func (m *membership) joinGroup(ctx context.Context) (*generation, error) {
	timeout := int32(m.c.cfg.SessionTimeout.Milliseconds())
	req := &joingroup.Request{
		GroupID: m.c.group, SessionTimeoutMS: timeout, RebalanceTimeoutMS: timeout, MemberID: m.id, ProtocolType: "consumer",
		Protocols: []joingroup.RequestProtocol{{Name: "cdc-relay-inbox", Metadata: kafkaclient.EncodeSubscription(slices.Sorted(maps.Keys(m.topics)))}},
	}
	codeOf := func(r *joingroup.Response) int16 { return r.ErrorCode }
	joined, err := askGroup(ctx, m, req, codeOf)
	if errors.Is(err, kafkago.MemberIDRequired) {
		m.id, req.MemberID = joined.MemberID, joined.MemberID
		joined, err = askGroup(ctx, m, req, codeOf)
	}
	if err != nil {
		return nil, err
	}
	m.id = joined.MemberID
	together := &syncgroup.Request{GroupID: m.c.group, GenerationID: joined.GenerationID, MemberID: m.id}
	if joined.LeaderID == m.id {
		if together.Assignments, err = m.assignPartitions(ctx, joined.Members); err != nil {
			return nil, err
		}
	}
	synced, err := askGroup(ctx, m, together, func(r *syncgroup.Response) int16 { return r.ErrorCode })
	if err != nil {
		return nil, err
	}
	assigned, err := kafkaclient.ReadAssignment(synced.Assignments)
	return &generation{m, joined.GenerationID, assigned}, err
}

// assignPartitions gives each member its partitions. The coordinator asks one member, the leader,
// to do it for all.
func (m *membership) assignPartitions(ctx context.Context, members []joingroup.ResponseMember) (all []syncgroup.RequestAssignment, err error) {
	takers := map[string][]string{} // by topic, the members that read it
	for _, of := range members {
		topics, err := kafkaclient.ReadSubscription(of.Metadata)
		if err != nil {
			return nil, fmt.Errorf("read the topics of member %s: %w", of.MemberID, err)
		}
		for _, topic := range topics {
			takers[topic] = append(takers[topic], of.MemberID)
		}
	}
	partitions, err := m.k.partitions(ctx, slices.Sorted(maps.Keys(takers))...)
	if err != nil {
		return nil, err
	}
	if err := addKnownPartitions(partitions, m.topics, takers); err != nil {
		return nil, err
	}
	shares := sharePartitions(takers, partitions)
	for _, of := range members {
		all = append(all, syncgroup.RequestAssignment{MemberID: of.MemberID, Assignment: kafkaclient.EncodeAssignment(shares[of.MemberID])})
	}
	return all, nil
}

// addKnownPartitions adds partitions that this member knows, because the broker that was asked may
// not know all of them yet. It fails when a topic has no partition, and the group begins again:
// otherwise nobody would read the topic, and nothing would say so.
func addKnownPartitions(partitions, known map[string][]int, takers map[string][]string) error {
	for topic, ids := range known {
		if len(partitions[topic]) < len(ids) {
			partitions[topic] = ids
		}
	}
	for topic := range takers {
		if len(partitions[topic]) == 0 {
			return fmt.Errorf("the brokers do not say which partitions topic %s has", topic)
		}
	}
	return nil
}

// sharePartitions gives each member of the group as many partitions as the others, counted over all
// topics.
func sharePartitions(takers map[string][]string, partitions map[string][]int) map[string]map[string][]int {
	shares := map[string]map[string][]int{}
	next := 0
	for _, topic := range slices.Sorted(maps.Keys(takers)) {
		slices.Sort(takers[topic])
		for _, id := range slices.Sorted(slices.Values(partitions[topic])) {
			member := takers[topic][next%len(takers[topic])]
			if shares[member] == nil {
				shares[member] = map[string][]int{}
			}
			shares[member][topic] = append(shares[member][topic], id)
			next++
		}
	}
	return shares
}

// leaveGroup tells the coordinator that this member leaves, so that other members get its
// partitions at once.
func (m *membership) leaveGroup(ctx context.Context) {
	if m.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_, err := askGroup(ctx, m, &leavegroup.Request{GroupID: m.c.group, MemberID: m.id}, func(r *leavegroup.Response) int16 { return r.ErrorCode })
	if err != nil {
		m.c.log.Debug("leave the group", "error", err)
	}
}

// isCoordinatorMoving reports whether the broker is no longer the group's coordinator, or not yet.
// The group itself is unchanged, and the next request finds its coordinator.
func isCoordinatorMoving(err error) bool {
	return errors.Is(err, kafkago.NotCoordinatorForGroup) || errors.Is(err, kafkago.GroupCoordinatorNotAvailable) || errors.Is(err, kafkago.GroupLoadInProgress)
}

// sendHeartbeats tells the coordinator that this process is alive. It ends the generation when the
// group has a new one, or when the coordinator is not reached.
func (g *generation) sendHeartbeats(ctx context.Context, end context.CancelCauseFunc) {
	ticker := time.NewTicker(g.c.cfg.SessionTimeout / 10)
	defer ticker.Stop()
	for heard := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		// When the coordinator does not hear from this member for this long, it removes it from the
		// group.
		_, err := kafkaclient.AskCoordinator(ctx, g.k.Pool, g.c.group, g.c.cfg.SessionTimeout,
			&heartbeat.Request{GroupID: g.c.group, GenerationID: g.number, MemberID: g.id}, func(r *heartbeat.Response) int16 { return r.ErrorCode })
		if err == nil {
			heard = time.Now()
			continue
		}
		if isCoordinatorMoving(err) && time.Since(heard) < g.c.cfg.SessionTimeout {
			continue
		}
		if ctx.Err() == nil && !isFenced(err) {
			g.c.log.Info("the group is joined again", "reason", err)
		}
		end(errRebalance)
		return
	}
}

// holdPartitions reads the partitions of one generation and commits their offsets. It returns nil
// when the group gives the partitions again.
func (c *Consumer) holdPartitions(ctx context.Context, g *generation) error {
	held, end := context.WithCancelCause(ctx)
	staying, done := context.WithCancel(context.WithoutCancel(ctx))
	var beside sync.WaitGroup
	defer beside.Wait()
	defer done()
	defer end(nil)
	beside.Go(func() { g.sendHeartbeats(staying, end) })
	parts, err := c.assignedPartitions(held, g)
	if isFenced(err) || errors.Is(context.Cause(held), errRebalance) {
		return nil
	}
	if err != nil {
		return err
	}
	beside.Go(func() { c.watchTopics(held, g.k, g.topics, end) })

	committing, committed := context.WithCancel(staying)
	defer committed()
	commits := make(chan error, 1)
	go func() {
		err := c.commitRegularly(committing, g, parts)
		switch {
		case isFenced(err):
			end(errRebalance)
		case err != nil:
			end(err)
		}
		commits <- err
	}()
	err = c.serveSessions(held, g.k, parts)
	committed()
	if failed := <-commits; failed == nil {
		// No handler runs any more. What they have done is committed before another process gets
		// the partitions.
		last, cancel := context.WithTimeout(staying, leaveTimeout)
		defer cancel()
		if err := g.commitOffsets(last, parts); err != nil {
			c.log.Debug("commit in the end", "error", err)
		}
		c.deleteHandled(last, g.k, parts)
	}
	if errors.Is(err, errRebalance) || ctx.Err() != nil {
		return nil
	}
	return err
}

// serveSessions runs one session after the other. It returns when ctx ends, or after an error that
// the next session would meet, too.
func (c *Consumer) serveSessions(ctx context.Context, k *link, parts []*partition) error {
	grace := func() time.Duration {
		// a member that takes longer is removed from the group
		if errors.Is(context.Cause(ctx), errRebalance) {
			return min(c.in.Grace(), c.cfg.SessionTimeout/2)
		}
		return c.in.Grace()
	}
	for pause := (work.Backoff{}); ; {
		if err := c.in.Ready(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &finalError{err}
		}
		c.in.BrokerUp(true)
		c.receiving.Works()
		began := time.Now()
		err := c.serveSession(ctx, k, parts, grace)
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

// assignedPartitions returns the partitions of a generation, each with the offset to begin with:
// the group's offset, or that of the first message. Such a first offset is committed at once,
// before its message is handled. So a message that is deleted before it was processed is noticed;
// see also checkOffsetsKept.
func (c *Consumer) assignedPartitions(ctx context.Context, g *generation) ([]*partition, error) {
	offsets, err := c.groupOffsets(ctx, g.k, g.assigned)
	if err != nil {
		return nil, err
	}
	var parts []*partition
	first := false
	for topic, ids := range g.assigned {
		for _, id := range ids {
			at, known := offsets[topic][id]
			p := &partition{topic: topic, id: id, own: c.isOwn(topic), next: at, committedTo: at, freed: make(chan struct{}, 1)}
			if !known {
				there, err := g.k.offsetRanges(ctx, topic, []int{id})
				if err != nil {
					return nil, err
				}
				first, p.next, p.committedTo = true, there[id].first, -1
			}
			parts = append(parts, p)
		}
	}
	if first {
		if err := c.checkOffsetsKept(ctx, g.k, g.topics); err != nil {
			return nil, err
		}
		if err := g.commitOffsets(ctx, parts); err != nil {
			return nil, err
		}
	}
	c.log.Info("partitions assigned", "group", c.group, "generation", g.number, "partitions", len(parts))
	return parts, nil
}

// groupOffsets returns the offsets that the group has committed. Partitions without a committed
// offset are left out.
func (c *Consumer) groupOffsets(ctx context.Context, k *link, partitions map[string][]int) (map[string]map[int]int64, error) {
	// never nil, which would mean all topics
	req := &offsetfetch.Request{GroupID: c.group, Topics: []offsetfetch.RequestTopic{}}
	for topic, ids := range partitions {
		of := offsetfetch.RequestTopic{Name: topic}
		for _, id := range ids {
			of.PartitionIndexes = append(of.PartitionIndexes, int32(id))
		}
		req.Topics = append(req.Topics, of)
	}
	res, err := kafkaclient.AskCoordinator(ctx, k.Pool, c.group, kafkaclient.RequestTimeout, req, func(r *offsetfetch.Response) int16 { return r.ErrorCode })
	if err != nil {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", c.group, err)
	}
	found := map[string]map[int]int64{}
	for _, t := range res.Topics {
		found[t.Name] = map[int]int64{}
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return nil, fmt.Errorf("fetch the offset of group %s for %s-%d: %w", c.group, t.Name, p.PartitionIndex, kafkago.Error(p.ErrorCode))
			}
			if p.CommittedOffset >= 0 {
				found[t.Name][int(p.PartitionIndex)] = p.CommittedOffset
			}
		}
	}
	return found, nil
}

// commitOffsets commits the offsets that have changed. Brokers refuse it from a former member of
// the group. Its messages are then delivered to another member, which finds the records of their
// events.
func (g *generation) commitOffsets(ctx context.Context, parts []*partition) error {
	req := &offsetcommit.Request{
		GroupID: g.c.group, GenerationID: g.number, MemberID: g.id,
		// -1 is the broker's own retention; brokers before version 5 of the request would take 0
		// for "at once"
		RetentionTimeMs: -1,
	}
	offsets, of := map[*partition]int64{}, map[string][]offsetcommit.RequestPartition{}
	for _, p := range parts {
		if to, ok := p.offsetToCommit(); ok {
			offsets[p] = to
			of[p.topic] = append(of[p.topic], offsetcommit.RequestPartition{PartitionIndex: int32(p.id), CommittedOffset: to})
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	for topic, partitions := range of {
		req.Topics = append(req.Topics, offsetcommit.RequestTopic{Name: topic, Partitions: partitions})
	}
	_, err := askGroup(ctx, g.membership, req, func(r *offsetcommit.Response) (code int16) {
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				code = cmp.Or(code, p.ErrorCode)
			}
		}
		return code
	})
	if err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", g.c.group, err)
	}
	for p, to := range offsets {
		p.noteCommitted(to)
	}
	return nil
}

// commitRegularly commits offsets, and deletes messages that were handled, until ctx ends.
func (c *Consumer) commitRegularly(ctx context.Context, g *generation, parts []*partition) error {
	ticker := time.NewTicker(commitEvery)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := g.commitOffsets(ctx, parts); err != nil {
			switch {
			case ctx.Err() != nil: // holdPartitions commits once more
				return nil
			case isCoordinatorMoving(err): // if it takes long, the heartbeats end the generation
				continue
			}
			return err
		}
		if time.Since(last) > deleteEvery {
			last = time.Now()
			c.deleteHandled(ctx, g.k, parts)
		}
	}
}

// deleteHandled deletes the messages before the committed offsets from the service's own topics, in
// which messages are otherwise kept for ever. When it fails, the topics only grow.
func (c *Consumer) deleteHandled(ctx context.Context, k *link, parts []*partition) {
	for _, p := range parts {
		to, ok := p.offsetToDelete()
		if !ok {
			continue
		}
		if err := k.DeleteBefore(ctx, p.topic, p.id, to); err != nil {
			if ctx.Err() == nil {
				c.log.Warn("delete handled messages", "topic", p.topic, "partition", p.id, "error", err)
			}
			return
		}
		p.noteDeleted(to)
	}
}
