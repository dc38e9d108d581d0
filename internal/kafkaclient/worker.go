// A worker sends the batches for one broker: it has a connection, one produce request on it at a
// time, and a timer that gives up a request when another broker leads. Two workers share a broker's
// queue.

package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

const (
	// answerGrace is how much longer than the timeout in a request its answer may take.
	answerGrace = 5 * time.Second
	// slowestNetwork is the least speed of a network, in bytes a second. The time for an answer
	// allows for a large request over such a network.
	slowestNetwork = 256 << 10
	// overdueMin is the least time after which a request is overdue; otherwise it is four times the
	// usual time. Then metadata is asked whether other brokers lead by now: a broker that no longer
	// leads may hold a batch that it has not replicated for its whole timeout.
	overdueMin = 20 * time.Millisecond
	// MaxThrottle bounds the pause that a broker may ask for. Kafka itself has no bound: n bytes
	// over a quota of q bytes a second cost n/q seconds.
	MaxThrottle = time.Hour
	// SilentAfter is how long a request may be unanswered before the broker counts as down.
	SilentAfter = 5 * time.Second
)

var (
	errMoved         = errors.New("another broker leads the partition now")
	errNoPartition   = errors.New("the answer does not name the partition")
	errUnknownBroker = errors.New("the broker is not in the cluster's metadata")
	// ErrOutdated is the error that is shown when connections break again and again before a
	// producer id is used.
	ErrOutdated = errors.New("the connections have ended before the producer id was used")
)

// worker sends the batches in its broker's queue. Only its own goroutine uses it, except for timer.
type worker struct {
	client        *Client
	queue         *queue
	number        int
	conn          Connection
	witnessed     int64 // the control session that has answered after conn was made
	isNew         bool  // no produce request was answered on conn yet
	everConnected bool  // a connection was made at least once
	fails         int   // attempts to connect that have failed in a row
	retryAt       time.Time
	lastError     error // of the last attempt that failed

	parts     []*ProducerBatch
	usualTime time.Duration // a moving average of the time to an answer
	request   rawproduce.Request
	timer     requestTimer
}

func (w *worker) init(client *Client, q *queue, number int) {
	w.client, w.queue, w.number = client, q, number
	w.request = rawproduce.Request{Acks: -1, Timeout: int32(client.Options.ConfirmTimeout.Milliseconds())}
	w.timer.timer = time.AfterFunc(time.Hour, w.checkRequest)
	w.timer.timer.Stop()
}

// run sends until ctx is done.
func (w *worker) run(ctx context.Context) {
	defer w.hangUp()
	for {
		// The answers that were just delivered have woken lanes. They push what they have before
		// this worker takes batches: measured, requests then have 6.7 instead of 3.8 batches, and a
		// fifth more events pass in a second. When no lane can run this costs nothing.
		runtime.Gosched()
		parts, apart := w.queue.takeBatches(w.number, w.parts[:0], w.conn != nil)
		if len(parts) == 0 {
			select {
			case <-w.queue.woken[w.number]:
				continue
			case <-ctx.Done():
				return
			}
		}
		w.parts = parts
		throttle := w.sendRequest(ctx)
		clear(w.parts)
		if apart {
			w.queue.noteApartReturned()
		}
		if throttle > 0 {
			// The relay is over its quota. The broker does not read from this connection during the
			// throttle, so a request would seem to be unanswered.
			w.queue.setState(w.number, stateBusy)
			Sleep(ctx, min(throttle, MaxThrottle))
			if throttle > MaxThrottle {
				w.hangUp() // the broker reads from a new connection
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// sendRequest sends one produce request with the batches in parts, and delivers each with its
// answer. It returns for how long the broker wants no other request.
func (w *worker) sendRequest(ctx context.Context) (throttle time.Duration) {
	if err := w.connect(ctx); err != nil {
		w.deliverAll(Answer{Kind: Unsent, Why: err})
		return 0
	}
	if w.dropOutdated(); len(w.parts) == 0 {
		return 0
	}
	records, size := w.fillRequest()
	pending := &w.client.Pending
	pending.Add(int64(records))
	w.timer.watchRequest(w.parts, w.conn.Close, max(overdueMin, 4*w.usualTime))
	timeout := w.client.Options.ConfirmTimeout + answerGrace + time.Duration(size/slowestNetwork)*time.Second
	produced, err := RoundTripAs[*produce.Response](ctx, w.conn, timeout, &w.request)
	took, moved := w.endRequest(err)
	pending.Add(-int64(records))
	if err != nil {
		w.hangUp()
		if moved {
			err = errMoved
		}
		cut := w.isNew && !moved && ctx.Err() == nil && len(w.parts) == 1 && isEndedByPeer(err)
		w.deliverAll(Answer{Kind: Lost, Why: err, Cut: cut})
		return 0
	}
	w.isNew = false
	w.usualTime += (took - w.usualTime) / 8
	w.deliverAnswers(produced)
	return time.Duration(produced.ThrottleTimeMs) * time.Millisecond
}

// endRequest ends the watch of a request that ended with err. It returns how long the request took,
// and whether it was given up because another broker leads.
func (w *worker) endRequest(err error) (took time.Duration, moved bool) {
	took, moved, silent := w.timer.endWatch()
	switch missed := &w.queue.missed; {
	case silent && err != nil && !moved:
		missed.Store(true) // the broker stays down, although the request was given up
	case silent, err == nil && missed.Load():
		missed.Store(false)
		w.client.noteBroker(w.queue.Node, "")
	}
	return took, moved
}

// dropOutdated keeps in parts the batches that may be sent on conn. It delivers the others back,
// and they take new producer ids. So it keeps rule R4 of sink/kafka/producer.go.
//
// Why that is enough. When storage is rolled back, all nodes are stopped at one moment, T. A
// connection ends with the process at its other end. After conn was made, the control connection
// sent a request, and had the answer in session witnessed.
//
//   - T is not after conn was made: the leader has run since then, or nothing is answered on conn.
//   - T is not between the answer with an id in session witnessed and that moment: its broker has
//     run.
//   - An id of a later session was asked for after conn was made.
//   - An id of an earlier session may be from before T. It is not used.
//
// What it costs. When the broker with the control connection restarts, or the only one, every
// producer takes a new id for its next batch, one round trip after the other, as at the start of
// the relay. Brokers fetch ids from the controller a thousand at a time. A restart of another
// broker, or a connection that was idle for too long, costs nothing.
func (w *worker) dropOutdated() {
	may := func(b *ProducerBatch) bool { return b.Tried || b.Session >= w.witnessed }
	if !slices.ContainsFunc(w.parts, may) {
		w.queue.setState(w.number, stateReturning)
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

// isEndedByPeer reports whether err says that the other end closed the connection, rather than a
// timeout.
func isEndedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// fillRequest puts the batches in parts into the request.
func (w *worker) fillRequest() (records, size int) {
	topics := w.request.Topics[:0]
	for _, b := range w.parts {
		n := len(topics) - 1
		for n >= 0 && topics[n].Topic != b.Topic {
			n--
		}
		if n < 0 {
			n = len(topics)
			if n < cap(topics) {
				topics = topics[:n+1] // with the memory of an earlier request
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

// deliverAnswers delivers the batches in parts, each with the broker's answer to it.
func (w *worker) deliverAnswers(res *produce.Response) {
	for _, b := range w.parts {
		b.Answer = Answer{Kind: Lost, Why: errNoPartition}
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
	w.queue.setState(w.number, stateReturning)
	for _, b := range w.parts {
		b.Deliver()
	}
}

// deliverAll delivers all batches in parts with the same answer.
func (w *worker) deliverAll(a Answer) {
	w.queue.setState(w.number, stateReturning)
	for _, b := range w.parts {
		b.Answer = a
		b.Deliver()
	}
}

// connect makes sure that there is a connection, and that it has not ended while it was idle. A
// batch that is sent on an ended connection would be in doubt, and rule R4 of
// sink/kafka/producer.go would not hold for it. After a failure it returns the same error for a
// while.
func (w *worker) connect(ctx context.Context) error {
	if w.conn != nil && w.conn.Usable() {
		return nil
	}
	w.hangUp()
	now := time.Now()
	if now.Before(w.retryAt) {
		return w.lastError
	}
	addr, known := w.client.Metadata.Load().Brokers[w.queue.Node]
	err := errUnknownBroker
	if known {
		dial, cancel := context.WithCancel(ctx)
		w.timer.watchRequest(w.parts, cancel, overdueMin)
		if w.conn, err = w.client.connect(dial, addr); err == nil {
			if w.witnessed, err = w.client.Control.awaitWitness(dial, w.parts[0].Topic); err != nil {
				w.conn.Close()
			}
		}
		_, moved, silent := w.timer.endWatch()
		cancel()
		if err != nil {
			w.conn = nil
		}
		if moved && err != nil {
			if silent {
				w.client.noteBroker(w.queue.Node, "") // no batch that waits needs this broker
			}
			return errMoved
		}
	}
	if err == nil {
		w.queue.missed.Store(false)
		w.isNew, w.fails, w.lastError = true, 0, nil
		w.client.countConnection(w.everConnected)
		w.everConnected = true
		w.client.noteBroker(w.queue.Node, "")
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.queue.missed.Store(false)
	w.fails++
	pause := min(25*time.Millisecond<<min(w.fails, 6), time.Second)
	if errors.Is(err, ErrLogin) {
		pause = time.Second
	}
	w.lastError, w.retryAt = err, now.Add(pause/2+rand.N(pause/2)) //nolint:gosec // jitter is no secret
	w.client.noteBroker(w.queue.Node, w.client.Options.Explain(err))
	return err
}

func (w *worker) hangUp() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
		w.client.Connections.Add(-1)
	}
}

// requestTimer is the state of the request, or dial, that is under way, and the timer that watches
// it.
type requestTimer struct {
	mu     sync.Mutex
	parts  []*ProducerBatch // nil while no request is under way
	since  time.Time
	stop   func() // gives the request up
	moved  bool   // stop was called because another broker leads
	silent bool   // the broker was reported as down because of this request
	timer  *time.Timer
}

// watchRequest begins to watch a request, or a dial, for parts. It counts as overdue after the time
// after. stop gives it up.
func (f *requestTimer) watchRequest(parts []*ProducerBatch, stop func(), after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts, f.stop, f.since, f.moved, f.silent = parts, stop, time.Now(), false, false
	f.timer.Reset(after)
}

// endWatch ends the watch, and returns how long the request took and what the timer has found.
func (f *requestTimer) endWatch() (took time.Duration, moved, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer.Stop()
	f.parts, f.stop = nil, nil
	return time.Since(f.since), f.moved, f.silent
}

// checkRequest is called by the timer when a request is overdue. When another broker now leads one
// of its partitions, it gives the request up, and the batches go to the new leaders unchanged.
// Otherwise it checks again after an eighth of the time that the request has taken so far.
func (w *worker) checkRequest() {
	f, c := &w.timer, w.client
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parts == nil {
		return
	}
	known := c.Metadata.Load()
	for _, part := range f.parts {
		if l, ok := known.Leader(part.Topic, part.Partition); ok && l.Node != w.queue.Node {
			f.moved = true
			f.stop()
			return
		}
		w.client.Control.RequestMetadata(part.Topic)
	}
	lasts := time.Since(f.since)
	if !f.silent && lasts >= SilentAfter {
		f.silent = true
		c.noteBroker(w.queue.Node, fmt.Sprintf("broker %d has not answered for %s", w.queue.Node, lasts.Round(time.Second)))
	}
	f.timer.Reset(min(max(lasts/8, overdueMin/2), time.Second))
}

// The bounds of a produce request.
const (
	// MaxRequest bounds the batches that are merged into one request, in bytes. A larger batch goes
	// alone.
	MaxRequest = 4 << 20
	// workersPerBroker is how many requests to one broker are under way at a time, for different
	// partitions. The second one uses the time in which the broker writes and replicates the first:
	// measured, two are 1.6 times as fast as one.
	workersPerBroker = 2
	// maxParts is the most batches in one request.
	maxParts = 256
)

// queue has the batches for one broker. Its workers take what is queued as soon as they are free.
// One request carries what has come while the requests before it were under way. So batches are
// merged under load, and a batch that comes alone goes at once.
//
// A broker answers a produce request when all of its batches are replicated. So a partition whose
// replicas do not keep up delays the others of its request. The batches of such slow partitions
// wait in a queue of their own and go in requests of their own, one at a time.
type queue struct {
	Node int32
	// missed is set while the broker counts as down because a request was given up without an
	// answer. An answer to another request clears it, and so does an attempt to connect.
	missed atomic.Bool

	mu       sync.Mutex
	Waiting  []*ProducerBatch // in the order in which they came
	Apart    []*ProducerBatch // likewise, of slow partitions
	apartOut bool             // a worker has batches that it took from Apart
	states   [workersPerBroker]workerState
	// has room for one signal: the worker was idle, and there is work
	woken [workersPerBroker]chan struct{}
}

// Push queues a batch. The caller then calls Signal, once for several batches.
func (q *queue) Push(b *ProducerBatch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.Slow {
		q.Apart = append(q.Apart, b)
	} else {
		q.Waiting = append(q.Waiting, b)
	}
}

// Signal wakes a worker for the batches that were pushed.
func (q *queue) Signal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeWorker()
}

// workerState is what a worker does, so that Signal knows which one to wake.
type workerState uint8

const (
	stateBusy        workerState = iota
	stateReturning               // it delivers answers, and takes what is queued after that
	stateUnconnected             // it waits to be woken, and has no connection
	stateConnected               // it waits to be woken, and has a connection
)

// wakeWorker wakes a worker, preferably one with a connection: the other opens its own only when
// there is work for two. While a worker is returning nobody is woken, because it takes all that the
// lanes push while it delivers. q.mu is locked.
func (q *queue) wakeWorker() {
	if len(q.Waiting) == 0 && (len(q.Apart) == 0 || q.apartOut) || slices.Contains(q.states[:], stateReturning) {
		return
	}
	i := slices.Index(q.states[:], stateConnected)
	if i < 0 {
		i = slices.Index(q.states[:], stateUnconnected)
	}
	if i >= 0 {
		q.states[i] = stateBusy
		q.woken[i] <- struct{}{}
	}
}

// setState records what a worker does now, and wakes a worker if there is work.
func (q *queue) setState(worker int, state workerState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.states[worker] = state
	q.wakeWorker()
}

// Withdraw takes back a batch that was pushed. It returns false when a worker has taken it.
func (q *queue) Withdraw(b *ProducerBatch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range []*[]*ProducerBatch{&q.Waiting, &q.Apart} {
		if i := slices.Index(*list, b); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// takeBatches returns the batches of a worker's next request, in the memory of parts. apart says
// that they are of slow partitions. When there are none, the worker counts as idle and waits to be
// woken.
func (q *queue) takeBatches(worker int, parts []*ProducerBatch, connected bool) (picked []*ProducerBatch, apart bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.Apart) > 0 && !q.apartOut {
		q.Apart, parts = pickBatches(q.Apart, parts)
		q.apartOut, apart = true, true
	} else {
		q.Waiting, parts = pickBatches(q.Waiting, parts)
	}
	switch {
	case len(parts) > 0:
		q.states[worker] = stateBusy
		q.wakeWorker() // for the batches that are left
	case !connected:
		q.states[worker] = stateUnconnected
	default:
		q.states[worker] = stateConnected
	}
	return parts, apart
}

// pickBatches moves the batches of one request from queue to parts: batches of different partitions
// with at most MaxRequest bytes in all, or one larger batch.
func pickBatches(queue, parts []*ProducerBatch) (rest, picked []*ProducerBatch) {
	rest, size := queue[:0], 0
	for i, b := range queue {
		switch {
		case len(parts) == maxParts, len(parts) > 0 && size >= MaxRequest:
			rest = append(rest, queue[i:]...)
			clear(queue[len(rest):])
			return rest, parts
		case len(parts) > 0 && size+len(b.Bytes) > MaxRequest, slices.ContainsFunc(parts, b.samePartition):
			rest = append(rest, b)
		default:
			parts = append(parts, b)
			size += len(b.Bytes)
		}
	}
	clear(queue[len(rest):])
	return rest, parts
}

// noteApartReturned is called when a worker has delivered the batches that it took from Apart, so
// that the next ones may go.
func (q *queue) noteApartReturned() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apartOut = false
}
