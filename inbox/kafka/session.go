// A session: the partitions of this process are read and their messages handled, until something
// fails or the partitions are to be given back.

package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/semaphore"

	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// session has the workers of one generation of the group, or of a part of it.
//
// Why nothing is lost. An offset is committed only when each message before it has had its effect,
// or another topic of the service has confirmed that it keeps the message. After any failure the
// partition is read again from the lowest offset that was not handled, by this process or, when the
// commit did not arrive, from an earlier one by any.
//
// Why nothing happens twice. A message that comes again finds the record of its event.
//
// Why the order of a key is kept, even while two processes have its partition, as when one of them
// was paused and does not know yet that it is out of the group. Each handles the messages of the
// key in their order, and begins the next only once it has seen the effect of the one before: it
// has committed it, or has found its record. So whoever makes an effect, the one before it is
// there. Only a message that has failed lets the later ones pass: it waits in a retry topic.
type session struct {
	c         *Consumer
	k         *link
	beginning context.Context // ends when no message is to be begun any more
	fail      context.CancelCauseFunc
	parts     []*partition
	workers   *work.Workers[task]
	count     *semaphore.Weighted // of messages in flight: MaxInFlight
	bytes     *semaphore.Weighted // of their bytes: MaxInFlightBytes
}

// task is one message for a worker.
type task struct {
	partition *partition
	record    *kafkago.Message
	bytes     int64
}

// abortPatience is how long handlers have to end after their context has: a rollback may take 5 s.
const abortPatience = 6 * time.Second

// serveSession runs a session until ctx ends or something fails, and returns why. When ctx ends the
// handlers that run may go on for grace. When it returns no handler runs, but for those that do not
// obey their context: what they do is not committed by this session, and their messages come again
// and wait for the records of these.
func (c *Consumer) serveSession(ctx context.Context, k *link, parts []*partition, grace func() time.Duration) error {
	taking, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	handling, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	s := &session{
		c: c, k: k, beginning: taking, fail: fail, parts: parts,
		count: semaphore.NewWeighted(int64(c.cfg.MaxInFlight)), bytes: semaphore.NewWeighted(int64(c.cfg.MaxInFlightBytes)),
	}
	s.workers = work.Start(c.in.Concurrency(), c.cfg.MaxInFlight, func(t task) { s.handleTask(handling, t) })
	var readers sync.WaitGroup
	for _, p := range parts {
		readers.Go(func() { s.readPartition(p) })
	}
	<-taking.Done()
	patience := grace()
	defer time.AfterFunc(patience, abort).Stop()
	readers.Wait()
	waiting, giveUp := context.WithTimeout(context.WithoutCancel(ctx), patience+abortPatience)
	defer giveUp()
	if n := s.workers.Close(waiting); n > 0 {
		c.log.Error("handlers still run after the end of their context: they must obey it", "handlers", n, "why", context.Cause(taking))
	}
	return context.Cause(taking)
}

// handleTask handles a message. Those that are not begun when the session ends are left to the
// next.
func (s *session) handleTask(ctx context.Context, t task) {
	defer func() {
		s.bytes.Release(t.bytes)
		s.count.Release(1)
	}()
	if s.beginning.Err() != nil {
		return
	}
	s.c.running.Add(1)
	defer s.c.running.Add(-1)
	if err := s.c.in.Handle(ctx, s.c.newMessage(t.record), delivery{s.c, s.k, t.record}); err != nil {
		s.fail(err) // before the worker goes on with the next message of the key
		return
	}
	t.partition.noteHandled(t.record.Offset)
	s.c.processing.Works()
}

// readPatience is how long reading may fail before the membership ends: brokers may have moved.
const readPatience = 30 * time.Second

// readBytes is about how much is read of each partition at a time.
func (s *session) readBytes() int {
	return min(max(s.c.cfg.MaxInFlightBytes/max(len(s.parts), 1), 64<<10), 1<<20)
}

// readPartition gives the messages of a partition to the workers until the session ends.
func (s *session) readPartition(p *partition) {
	var pause work.Backoff
	var failing time.Time // since when
	for from := p.startReading(); s.beginning.Err() == nil; {
		messages, next, err := s.k.Fetch(s.beginning, p.topic, p.id, from, s.readBytes())
		if err != nil {
			if s.beginning.Err() != nil {
				return
			}
			if failing.IsZero() {
				failing = time.Now()
			}
			final := s.c.explainReadError(s.beginning, s.k, p, from, err)
			if final == nil && time.Since(failing) > readPatience {
				final = fmt.Errorf("read %s-%d: %w: %w", p.topic, p.id, errUnreadable, withLimitHint(err))
			}
			if final != nil {
				s.fail(final)
				return
			}
			if pause.Pause(s.beginning) != nil {
				return
			}
			continue
		}
		failing = time.Time{}
		pause.Reset()
		s.c.joined.Store(true)
		for i := range messages {
			if !s.addTask(p, &messages[i]) {
				return
			}
		}
		from = next
		p.skipTo(next)
	}
}

// passedFactor times MaxInFlight is how many messages of a partition are handled after one that is
// not: they come again after a crash, and are noted until then.
const passedFactor = 100

// addTask waits until a message is due and there is room, and gives it to the worker of its key. It
// is false when the session has ended.
func (s *session) addTask(p *partition, m *kafkago.Message) bool {
	if !sleepUntil(s.beginning, s.c.dueAt(m)) || !p.waitForRoom(s.beginning, passedFactor*s.c.cfg.MaxInFlight) {
		return false
	}
	t := task{partition: p, record: m, bytes: min(int64(kafkaclient.MessageSize(m)), int64(s.c.cfg.MaxInFlightBytes))}
	if s.count.Acquire(s.beginning, 1) != nil {
		return false
	}
	if s.bytes.Acquire(s.beginning, t.bytes) != nil {
		return false
	}
	p.noteTaken(m.Offset)
	return s.workers.Add(s.beginning, string(m.Key), t) == nil
}

// sleepUntil is false when ctx ends before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	if d := time.Until(at); d > 0 {
		return kafkaclient.Sleep(ctx, d)
	}
	return ctx.Err() == nil
}

// partition is one that this process reads. Messages are taken in order and handled in any. The
// offset to commit is the lowest that was not handled: what was handled above it may come again,
// and then has no effect.
type partition struct {
	topic string
	id    int
	own   bool // of the service's own topics

	freed chan struct{} // has one when pending has become shorter

	mu          sync.Mutex
	next        int64          // the offset to take next
	pending     []takenMessage // in the order of their offsets; the first is not handled
	deletedTo   int64          // messages before this one were deleted
	committedTo int64          // the committed offset
	topicGone   bool           // the topic was deleted
}

type takenMessage struct {
	offset  int64
	handled bool
}

// startReading makes the partition read from an offset on.
func (p *partition) startReading() (from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.pending = p.handledTo(), nil
	return p.next
}

// waitForRoom waits until fewer messages than bound were taken since the first that is not handled.
// It is false when ctx ends before.
func (p *partition) waitForRoom(ctx context.Context, bound int) bool {
	for {
		p.mu.Lock()
		full := len(p.pending) >= bound
		p.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-p.freed:
		case <-ctx.Done():
			return false
		}
	}
}

// noteTaken notes that the message at an offset is being handled.
func (p *partition) noteTaken(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, takenMessage{offset: offset})
	p.next = offset + 1
}

// skipTo notes that there is no message before an offset.
func (p *partition) skipTo(to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = max(p.next, to)
}

// noteHandled notes that a message has had its effect, or is kept by another topic.
func (p *partition) noteHandled(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, found := slices.BinarySearchFunc(p.pending, offset, func(t takenMessage, offset int64) int { return cmp.Compare(t.offset, offset) })
	if !found {
		return
	}
	p.pending[i].handled = true
	n := 0
	for n < len(p.pending) && p.pending[n].handled {
		n++
	}
	p.pending = p.pending[n:]
	if n > 0 {
		select {
		case p.freed <- struct{}{}:
		default:
		}
	}
}

// handledTo is the lowest offset that was not handled.
func (p *partition) handledTo() int64 {
	if len(p.pending) > 0 {
		return p.pending[0].offset
	}
	return p.next
}

// offsetToCommit returns the offset to commit, if it is not committed.
func (p *partition) offsetToCommit() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.handledTo()
	return to, to != p.committedTo && !p.topicGone
}

// noteCommitted notes that the group has an offset.
func (p *partition) noteCommitted(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committedTo = offset
}

// offsetToDelete returns the offset before which the messages are to be deleted, if they are not.
func (p *partition) offsetToDelete() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committedTo, p.own && p.committedTo > p.deletedTo && !p.topicGone
}

// noteDeleted notes that the messages before an offset were deleted.
func (p *partition) noteDeleted(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deletedTo = offset
}

// noteTopicGone notes that the topic was deleted: an offset of it would be one of the next topic of
// its name, and messages would be deleted there.
func (p *partition) noteTopicGone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topicGone = true
}

// LostError says that the broker does not have the messages that are next for the group. Some were
// deleted before they were processed, or the topic is not the one that the offset is of. Nothing is
// skipped until somebody has reset the offset.
type LostError struct {
	Group     string // the consumer group
	Topic     string // the topic that is not read on
	Partition int    // the partition of it
	Next      int64  // the offset of the next message to process
	First     int64  // the offset of the first message that the broker has
	After     int64  // the offset after the last one
}

// Error names what is lost, and the command that accepts it.
func (e *LostError) Error() string {
	why := fmt.Sprintf("%d messages were deleted before they were processed", e.First-e.Next)
	if e.Next > e.After {
		why = "the topic was deleted and created again, or its last messages were lost"
	}
	return fmt.Sprintf("read %s-%d: the next message for group %s is %d, and the broker has those from %d to before %d: %s. "+
		"When that is understood, go on with the first message there is: kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group %s --topic %s:%d --reset-offsets --to-earliest --execute",
		e.Topic, e.Partition, e.Group, e.Next, e.First, e.After, why, e.Group, e.Topic, e.Partition)
}

// errTopicGone ends a membership: the topic that is read does not exist any more. The one of the
// same name that may follow is another: it is read from the group's offset, which the broker
// deletes with the topic.
var errTopicGone = errors.New("the topic does not exist any more")

// errOvertaken ends a membership: the group has passed what this process is about to read. It was
// frozen, and does not know yet that another has its partitions, has handled these messages and
// deleted them.
var errOvertaken = errors.New("another process has processed the messages")

// explainReadError returns the error that ends a session after a read has failed, or nil when the
// read is made again.
func (c *Consumer) explainReadError(ctx context.Context, k *link, p *partition, from int64, err error) error {
	switch {
	case errors.Is(err, kafkago.OffsetOutOfRange):
		there, err := k.offsetRanges(ctx, p.topic, []int{p.id})
		if err != nil {
			return nil //nolint:nilerr // the read is made again, and says it again
		}
		at, err := c.groupOffsets(ctx, k, map[string][]int{p.topic: {p.id}})
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		return c.explainOutOfRange(p, from, there[p.id], at[p.topic][p.id])
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		p.noteTopicGone()
		return fmt.Errorf("read %s-%d: %w", p.topic, p.id, errTopicGone)
	case isRefused(err):
		return fmt.Errorf("read %s-%d: %w", p.topic, p.id, err)
	}
	return nil
}

// explainOutOfRange says what it means that a broker has refused to read at the offset from. nil:
// by now the broker has the message. errOvertaken: another member has processed it, for the group's
// offset, group, is above it. A LostError: messages are lost. e are the offsets that the broker
// has.
func (c *Consumer) explainOutOfRange(p *partition, from int64, e offsetRange, group int64) error {
	switch {
	case from >= e.first && from <= e.after: // by now it has them
		return nil
	case group > from:
		return fmt.Errorf("read %s-%d: %w", p.topic, p.id, errOvertaken)
	}
	return &LostError{Group: c.group, Topic: p.topic, Partition: p.id, Next: from, First: e.first, After: e.after}
}

// withLimitHint says what to do about a batch that is too large.
func withLimitHint(err error) error {
	var over *kafkaclient.TooLargeError
	if errors.As(err, &over) {
		return fmt.Errorf("%w; raise MaxInFlightBytes", err)
	}
	return err
}

// errUnreadable ends a membership: the brokers are looked up again.
var errUnreadable = errors.New("reading has failed for a while")

// endsMembership reports whether another session of the same membership would meet the error, too.
func endsMembership(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) || errors.Is(err, errTopicGone) || errors.Is(err, errOvertaken) || errors.Is(err, errUnreadable) || isRefused(err)
}

// isRefused reports whether the broker refuses the login or a right.
func isRefused(err error) bool {
	if errors.Is(err, kafkaclient.ErrLogin) {
		return true
	}
	for _, code := range []kafkago.Error{
		kafkago.SASLAuthenticationFailed, kafkago.UnsupportedSASLMechanism, kafkago.IllegalSASLState, kafkago.TopicAuthorizationFailed,
		kafkago.GroupAuthorizationFailed, kafkago.ClusterAuthorizationFailed,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// checkOffsetsKept returns an error when the group has no offset at all, and the table has records
// of the service: the group was deleted, or its offsets have expired. Beginning with the first
// messages would repeat the effects of those that are older than the records.
//
// A new group meets no false alarm. Its members commit their first offsets before they handle
// messages, so that there are offsets where there are records. The records are looked up first:
// another member may make both meanwhile.
func (c *Consumer) checkOffsetsKept(ctx context.Context, k *link, topics map[string][]int) error {
	records, err := c.in.Remembers(ctx)
	if err != nil || !records {
		return err
	}
	offsets, err := c.groupOffsets(ctx, k, topics)
	if err != nil {
		return err
	}
	for _, partitions := range offsets {
		if len(partitions) > 0 {
			return nil
		}
	}
	return &finalError{fmt.Errorf("the service has processed messages, and its group %s has no offsets: they have expired, or were deleted. "+
		"From the first messages on, those that are older than the records would have their effects again. Choose where to begin: "+
		"kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group %s --topic %s --reset-offsets --to-earliest|--to-latest|--to-datetime TIME --execute",
		c.group, c.group, strings.Join(c.cfg.Topics, " --topic "))}
}
