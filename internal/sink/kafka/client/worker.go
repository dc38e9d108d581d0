// A worker: one connection to a broker, and one produce request on it at a time.

package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// Connection is a connection to a broker: a *conn.Conn, or what tests put in its place.
type Connection interface {
	unwatched
	// Watch notices the end of the connection while it is idle; see Conn.Watch. It costs a
	// goroutine each time: it is for the control connection.
	Watch(ended chan<- struct{}) (unwatch func())
}

// unwatched is what a worker needs of its connection.
type unwatched interface {
	conn.RoundTripper
	Usable() bool
	Close()
}

const (
	// answerGrace is how much longer than the timeout in the request its answer may take.
	answerGrace = 5 * time.Second
	// slowest is the slowest network that a large request is waited for, in bytes a second.
	slowest = 256 << 10
	// A request is overdue after four times the usual time, and this at least. Then metadata is
	// asked whether other brokers lead by now: a broker that no longer leads may keep what it has
	// not replicated yet for its whole timeout.
	overdueMin = 20 * time.Millisecond
	// MaxThrottle bounds the pause that a broker may ask for. Kafka has no bound: n bytes over a
	// quota of q bytes a second cost n/q seconds.
	MaxThrottle = time.Hour
	// SilentAfter makes the broker count as down.
	SilentAfter = 5 * time.Second
)

var (
	errMoved   = errors.New("another broker leads the partition now")
	errMissing = errors.New("the answer does not name the partition")
	errUnknown = errors.New("the broker is not in the cluster's metadata")
	// ErrOutdated is shown when connections break again and again before an id is used.
	ErrOutdated = errors.New("the connections have ended before the producer id was used")
)

// worker sends what is in its broker's queue. It belongs to its goroutine, except for timer.
type worker struct {
	cluster *cluster
	control *control
	queue   *queue
	number  int
	conn    unwatched
	seen    int64 // the control session that has answered since conn was made: see current
	fresh   bool  // no produce request was answered on conn yet
	had     bool  // a connection was made at least once
	fails   int   // attempts in a row to connect
	retry   time.Time
	failed  error // the last of them

	parts   []*ProducerBatch
	usual   time.Duration // a moving average of how long an answer takes
	request rawproduce.Request
	timer   requestTimer
}

func (w *worker) init(cluster *cluster, control *control, q *queue, number int) {
	w.cluster, w.control, w.queue, w.number = cluster, control, q, number
	w.request = rawproduce.Request{Acks: -1, Timeout: int32(cluster.Options.ConfirmTimeout.Milliseconds())}
}

// run sends until ctx is done.
func (w *worker) run(ctx context.Context) {
	defer w.hangUp()
	w.timer.timer = time.AfterFunc(time.Hour, w.checkRequest)
	defer w.timer.timer.Stop()
	for {
		// The answers just delivered have woken lanes. They push what they have before this worker
		// takes it: measured, requests have 6.7 instead of 3.8 batches, and a fifth more events
		// pass in a second. When no lane can run this costs nothing.
		runtime.Gosched()
		parts, apart := w.queue.take(w.number, w.parts[:0], w.conn != nil)
		if len(parts) == 0 {
			select {
			case <-w.queue.woken[w.number]:
				continue
			case <-ctx.Done():
				return
			}
		}
		w.parts = parts
		throttle := w.send(ctx)
		clear(w.parts)
		if apart {
			w.queue.returned()
		}
		if throttle > 0 {
			// The relay is over its quota. The broker does not read from this connection for so
			// long, so a request would seem to be unanswered.
			w.queue.set(w.number, busy)
			Sleep(ctx, min(throttle, MaxThrottle))
			if throttle > MaxThrottle {
				w.hangUp() // the broker reads from a new one
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// send sends one request with all parts, and delivers each with its answer.
func (w *worker) send(ctx context.Context) (throttle time.Duration) {
	if err := w.connect(ctx); err != nil {
		w.deliver(Answer{Kind: Unsent, Why: err})
		return 0
	}
	if w.dropOutdated(); len(w.parts) == 0 {
		return 0
	}
	records, size := w.fill()
	pending := &w.cluster.Pending
	pending.Add(int64(records))
	w.timer.begin(w.parts, w.conn.Close, max(overdueMin, 4*w.usual))
	timeout := w.cluster.Options.ConfirmTimeout + answerGrace + time.Duration(size/slowest)*time.Second
	produced, err := conn.RoundTripAs[*produce.Response](ctx, w.conn, timeout, &w.request)
	took, moved, silent := w.timer.end()
	pending.Add(-int64(records))
	switch missed := &w.queue.missed; {
	case silent && err != nil && !moved:
		missed.Store(true) // the broker stays down although the request was given up
	case silent, err == nil && missed.Load():
		missed.Store(false)
		w.cluster.note(w.queue.Node, "")
	}
	if err != nil {
		w.hangUp()
		if moved {
			err = errMoved
		}
		cut := w.fresh && !moved && ctx.Err() == nil && len(w.parts) == 1 && endedByPeer(err)
		w.deliver(Answer{Kind: Lost, Why: err, Cut: cut})
		return 0
	}
	w.fresh = false
	w.usual += (took - w.usual) / 8
	w.answer(produced)
	return time.Duration(produced.ThrottleTimeMs) * time.Millisecond
}

// dropOutdated keeps in parts the batches that may be sent on conn. It delivers the others back,
// and they take new producer ids. So it keeps rule R4 of producer.
//
// Why that is enough. When storage is rolled back, all nodes are stopped at one moment, T. A
// connection ends with the process at its other end. After conn was made, the control connection
// sent a request, and had the answer in session seen.
//
//   - T is not after conn was made: the leader has run since then, or nothing is answered on conn.
//   - T is not between the answer with an id in session seen and that moment: its broker has run.
//   - An id of a later session was asked for after conn was made.
//   - An id of an earlier session may be from before T. It is not used.
//
// What it costs. When the broker with the control connection restarts, or the only one, every
// producer takes a new id for its next batch, one round trip after the other, as at the start of
// the relay. Brokers fetch ids from the controller a thousand at a time. A restart of another
// broker, or a connection that was idle for too long, costs nothing.
func (w *worker) dropOutdated() {
	may := func(b *ProducerBatch) bool { return b.Tried || b.Session >= w.seen }
	if !slices.ContainsFunc(w.parts, may) {
		w.queue.set(w.number, returning)
	}
	w.parts = slices.DeleteFunc(w.parts, func(b *ProducerBatch) bool {
		if may(b) {
			return false
		}
		b.Answer = Answer{Kind: Outdated}
		b.Deliver()
		return true
	})
}

// endedByPeer reports whether err is the connection's end, rather than a timeout.
func endedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// fill writes the request.
func (w *worker) fill() (records, size int) {
	topics := w.request.Topics[:0]
	for _, b := range w.parts {
		n := len(topics) - 1
		for n >= 0 && topics[n].Topic != b.Topic {
			n--
		}
		if n < 0 {
			n = len(topics)
			if n < cap(topics) {
				topics = topics[:n+1] // with the room of an earlier request
			} else {
				topics = append(topics, rawproduce.RequestTopic{})
			}
			topics[n].Topic, topics[n].Partitions = b.Topic, topics[n].Partitions[:0]
		}
		b.Reader.Reset(b.Bytes)
		topics[n].Partitions = append(topics[n].Partitions, rawproduce.RequestPartition{
			Partition: b.Partition, RecordSet: protocol.RawRecordSet{Reader: &b.Reader},
		})
		records += b.Records
		size += len(b.Bytes)
	}
	w.request.Topics = topics
	return records, size
}

// answer delivers the parts with the broker's answer to each.
func (w *worker) answer(res *produce.Response) {
	for _, b := range w.parts {
		b.Answer = Answer{Kind: Lost, Why: errMissing}
	}
	for i := range res.Topics {
		topic := &res.Topics[i]
		for j := range topic.Partitions {
			said := &topic.Partitions[j]
			for _, b := range w.parts {
				if b.Partition != said.Partition || b.Topic != topic.Topic {
					continue
				}
				b.Answer = Answer{Kind: Answered, Code: said.ErrorCode, Message: said.ErrorMessage}
				for _, e := range said.RecordErrors {
					b.Answer.Culprits = append(b.Answer.Culprits, e.BatchIndex)
					if b.Answer.Message == "" {
						b.Answer.Message = e.BatchIndexErrorMessage
					}
				}
				break
			}
		}
	}
	w.queue.set(w.number, returning)
	for _, b := range w.parts {
		b.Deliver()
	}
}

// deliver delivers all parts with the same answer.
func (w *worker) deliver(a Answer) {
	w.queue.set(w.number, returning)
	for _, b := range w.parts {
		b.Answer = a
		b.Deliver()
	}
}

// connect ensures a connection, one that has not ended while it was idle: a batch that is sent on
// an ended connection would be in doubt, and rule R4 of producer would not hold for it. After a
// failure it fails with the same error for a while.
func (w *worker) connect(ctx context.Context) error {
	if w.conn != nil && w.conn.Usable() {
		return nil
	}
	w.hangUp()
	now := time.Now()
	if now.Before(w.retry) {
		return w.failed
	}
	addr, known := w.cluster.Metadata.Load().Brokers[w.queue.Node]
	err := errUnknown
	if known {
		dial, cancel := context.WithCancel(ctx)
		w.timer.begin(w.parts, cancel, overdueMin)
		if w.conn, err = w.cluster.connect(dial, addr); err == nil {
			if w.seen, err = w.control.witness(dial, w.parts[0].Topic); err != nil {
				w.conn.Close()
			}
		}
		_, moved, silent := w.timer.end()
		cancel()
		if err != nil {
			w.conn = nil
		}
		if moved && err != nil {
			if silent {
				w.cluster.note(w.queue.Node, "") // nothing that waits needs this broker
			}
			return errMoved
		}
	}
	if err == nil {
		w.queue.missed.Store(false)
		w.fresh, w.fails, w.failed = true, 0, nil
		w.cluster.connected(w.had)
		w.had = true
		w.cluster.note(w.queue.Node, "")
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.queue.missed.Store(false)
	w.fails++
	pause := min(25*time.Millisecond<<min(w.fails, 6), time.Second)
	if errors.Is(err, conn.ErrLogin) {
		pause = time.Second
	}
	w.failed, w.retry = err, now.Add(pause/2+rand.N(pause/2)) //nolint:gosec // jitter is no secret
	w.cluster.note(w.queue.Node, conn.Explain(err))
	return err
}

func (w *worker) hangUp() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
		w.cluster.Connections.Add(-1)
	}
}
