// A session: the partitions of this process are read and their messages handled, until something
// fails or the partitions are to be given back.

package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/semaphore"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
	"github.com/cdc-relay/cdc-relay/inbox/internal/keyed"
	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
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
	c       *Consumer
	k       *kafkalink.Link
	taking  context.Context // ends when no message is to be begun any more
	fail    context.CancelCauseFunc
	parts   []*partition
	workers *keyed.Workers[task]
	count   *semaphore.Weighted // messages in flight
	bytes   *semaphore.Weighted
}

// task is one message for a worker.
type task struct {
	partition *partition
	record    *kafkago.Message
	bytes     int64
}

// afterAbort is how long handlers have to end after their context has: a rollback may take 5 s.
const afterAbort = 6 * time.Second

// serve runs a session until ctx ends or something fails, and returns why. When ctx ends the
// handlers that run may go on for grace. When it returns no handler runs, but for those that do not
// obey their context: what they do is not committed by this session, and their messages come again
// and wait for the records of these.
func (c *Consumer) serve(ctx context.Context, k *kafkalink.Link, parts []*partition, grace func() time.Duration) error {
	taking, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	handling, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	s := &session{
		c: c, k: k, taking: taking, fail: fail, parts: parts,
		count: semaphore.NewWeighted(int64(c.cfg.MaxInFlight)), bytes: semaphore.NewWeighted(int64(c.cfg.MaxInFlightBytes)),
	}
	s.workers = keyed.Start(c.in.Concurrency(), c.cfg.MaxInFlight, func(t task) { s.handle(handling, t) })
	var readers sync.WaitGroup
	for _, p := range parts {
		readers.Go(func() { s.read(p) })
	}
	<-taking.Done()
	patience := grace()
	defer time.AfterFunc(patience, abort).Stop()
	readers.Wait()
	waiting, giveUp := context.WithTimeout(context.WithoutCancel(ctx), patience+afterAbort)
	defer giveUp()
	if n := s.workers.Close(waiting); n > 0 {
		c.log.Error("handlers still run after the end of their context: they must obey it", "handlers", n, "why", context.Cause(taking))
	}
	return context.Cause(taking)
}

// handle handles a message. Those that are not begun when the session ends are left to the next.
func (s *session) handle(ctx context.Context, t task) {
	defer func() {
		s.bytes.Release(t.bytes)
		s.count.Release(1)
	}()
	if s.taking.Err() != nil {
		return
	}
	s.c.running.Add(1)
	defer s.c.running.Add(-1)
	if err := s.c.in.Handle(ctx, s.c.message(t.record), delivery{s.c, s.k, t.record}); err != nil {
		s.fail(err) // before the worker goes on with the next message of the key
		return
	}
	t.partition.handled(t.record.Offset)
	s.c.processing.Works()
}

// unreadable is how long reading may fail before the membership ends: brokers may have moved.
const unreadable = 30 * time.Second

// readBytes is about how much is read of each partition at a time.
func (s *session) readBytes() int {
	return min(max(s.c.cfg.MaxInFlightBytes/max(len(s.parts), 1), 64<<10), 1<<20)
}

// read gives the messages of a partition to the workers until the session ends.
func (s *session) read(p *partition) {
	var pause wait.Backoff
	var failing time.Time // since when
	for from := p.start(); s.taking.Err() == nil; {
		messages, next, err := s.k.Fetch(s.taking, p.topic, p.id, from, s.readBytes())
		if err != nil {
			if s.taking.Err() != nil {
				return
			}
			if failing.IsZero() {
				failing = time.Now()
			}
			final := s.c.judge(s.taking, s.k, p, from, err)
			if final == nil && time.Since(failing) > unreadable {
				final = fmt.Errorf("read %s-%d: %w: %w", p.topic, p.id, errUnreadable, err)
			}
			if final != nil {
				s.fail(final)
				return
			}
			if pause.Pause(s.taking) != nil {
				return
			}
			continue
		}
		failing = time.Time{}
		pause.Reset()
		s.c.joined.Store(true)
		for i := range messages {
			if !s.add(p, &messages[i]) {
				return
			}
		}
		from = next
		p.skip(next)
	}
}

// passing times MaxInFlight is how many messages of a partition are handled after one that is not:
// they come again after a crash, and are noted until then.
const passing = 100

// add waits until a message is due and there is room, and gives it to the worker of its key. It is
// false when the session has ended.
func (s *session) add(p *partition, m *kafkago.Message) bool {
	if !sleepUntil(s.taking, s.c.due(m)) || !p.room(s.taking, passing*s.c.cfg.MaxInFlight) {
		return false
	}
	t := task{partition: p, record: m, bytes: min(int64(kafkalink.Size(m)), int64(s.c.cfg.MaxInFlightBytes))}
	if s.count.Acquire(s.taking, 1) != nil {
		return false
	}
	if s.bytes.Acquire(s.taking, t.bytes) != nil {
		return false
	}
	p.take(m.Offset)
	return s.workers.Add(s.taking, string(m.Key), t) == nil
}

// sleepUntil is false when ctx ends before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
