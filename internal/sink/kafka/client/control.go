// The control connection: it asks for metadata, and for producer ids.

package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

const (
	RefreshEvery = 30 * time.Second // of all topics, when nobody asks
	// the same, when the connection ends while it is idle: at once, but not more often
	endedEvery     = 2 * time.Second
	AskEvery       = 10 * time.Millisecond // at most, whoever asks
	ControlTimeout = 16 * time.Second      // for one answer
	// the same, at first: it doubles with each that does not come
	ControlFirst = time.Second
	StaleAfter   = 10 * time.Second // of questions that do not end, another broker is asked
	// for a broker to let the connection in, at first: it doubles with each round
	controlDial = 3 * time.Second
	// for a topic with an error that no lane asks for
	forgetAfter = 30 * time.Second
)

// control keeps one connection to any broker. Its goroutine, run, sends the requests of the lanes.
// Lanes and the reader call the other methods.
type control struct {
	cluster *cluster

	mu sync.Mutex
	// the topics that are refreshed: when a lane has asked last; zero: for ever
	topics map[string]time.Time
	due    map[string]struct{} // those that are asked for now
	ids    []*ProducerBatch    // that need a producer id
	woken  chan struct{}       // cap 1

	questions atomic.Int64 // for metadata, so far

	// The goroutine's own.
	conn    Connection
	addr    string
	session int64     // counts the connections
	last    time.Time // when metadata was asked for last
	all     time.Time // when all topics were
	turn    bool      // metadata was asked for since the last id
	series  time.Time // since when lanes have asked without a pause
	slow    int       // answers in a row that did not come
	fails   int       // rounds over all brokers in a row that found none
	refused time.Time // since when the login is refused, without a connection before
	had     bool      // a connection was made at least once
}

func newControl(shared *cluster) *control {
	return &control{
		cluster: shared, topics: map[string]time.Time{}, due: map[string]struct{}{}, woken: make(chan struct{}, 1),
	}
}

// Want has a topic refreshed from now on.
func (c *control) Want(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[topic] = time.Time{}
}

// Ask requests metadata of a topic soon. The answer is in a snapshot newer than the present one.
func (c *control) Ask(topic string) {
	c.mu.Lock()
	if at, known := c.topics[topic]; !known || !at.IsZero() {
		c.topics[topic] = time.Now()
	}
	c.due[topic] = struct{}{}
	c.mu.Unlock()
	c.wake()
}

// Identify gets the batch a producer id, and delivers it with an answer of kind identity.
func (c *control) Identify(s *ProducerBatch) {
	c.mu.Lock()
	c.ids = append(c.ids, s)
	c.mu.Unlock()
	c.wake()
}

// Withdraw takes back what identify was given; false when it is too late for that.
func (c *control) Withdraw(s *ProducerBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.ids, s)
	if i >= 0 {
		c.ids = slices.Delete(c.ids, i, i+1)
	}
	return i >= 0
}

// witness waits for an answer to a request about the topic that is sent after the call, and returns
// the session that it came in.
func (c *control) witness(ctx context.Context, topic string) (session int64, err error) {
	asked := c.questions.Load()
	for {
		known := c.cluster.Metadata.Load()
		if known.witness.question > asked {
			return known.witness.session, nil
		}
		c.Ask(topic)
		select {
		case <-known.Stale:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (c *control) wake() { conn.Notify(c.woken) }

// run asks until ctx is done. It returns an error only for a login that is refused for good.
func (c *control) run(ctx context.Context) error {
	defer c.hangUp()
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := make(chan struct{}, 1)
	for {
		unwatch := func() {}
		if c.conn != nil {
			unwatch = c.conn.Watch(ended)
		}
		select {
		case <-timer.C:
		case <-c.woken:
		case <-ended:
		case <-ctx.Done():
		}
		unwatch()
		if c.conn != nil && !c.conn.Usable() {
			c.hangUp() // else the next watch would end at once
			c.all = c.last.Add(endedEvery - RefreshEvery)
		}
		if ctx.Err() != nil {
			return nil
		}
		pause, err := c.work(ctx)
		if err != nil {
			return err
		}
		timer.Reset(pause)
	}
}

// work sends what is due, and returns how long it may pause unless it is woken.
func (c *control) work(ctx context.Context) (pause time.Duration, err error) {
	for ctx.Err() == nil {
		s, topics, pause := c.next(time.Now())
		if s == nil && topics == nil {
			return pause, nil
		}
		err := c.connect(ctx)
		switch {
		case err != nil:
		case s != nil:
			err = c.identity(ctx, s)
			s = nil
		default:
			if err = c.refresh(ctx, topics); err == nil {
				topics = nil
			}
		}
		c.again(s, topics)
		if err == nil {
			c.fails = 0
			continue
		}
		if stop := c.refusedFor(err); stop != nil {
			return 0, stop
		}
		if c.conn == nil && c.fails > 0 {
			// No broker at all. Nobody's wake shortens this.
			if !Sleep(ctx, c.backoff()) {
				return 0, nil
			}
		}
	}
	return 0, nil
}

// next is what to do now: an id for a batch, metadata of some topics, or nothing for so long. When
// both are wanted they take turns: where no ids are to be had, batches without end ask for them.
func (c *control) next(now time.Time) (s *ProducerBatch, topics []string, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	everything := now.Sub(c.all) >= RefreshEvery
	due := (everything || len(c.due) > 0) && now.Sub(c.last) >= AskEvery
	if len(c.ids) > 0 && (!due || c.turn) {
		s, c.turn = c.ids[0], false
		c.ids = slices.Delete(c.ids, 0, 1)
		return s, nil, 0
	}
	if !everything && len(c.due) == 0 {
		return nil, nil, RefreshEvery - now.Sub(c.all)
	}
	since := now.Sub(c.last)
	if since < AskEvery {
		return nil, nil, AskEvery - since
	}
	if since > time.Second {
		c.series = now
	}
	topics = make([]string, 0, len(c.due)) // never nil: that would be all topics of the cluster
	if everything {
		for topic, asked := range c.topics {
			if !asked.IsZero() && now.Sub(asked) > forgetAfter {
				delete(c.topics, topic)
				continue
			}
			topics = append(topics, topic)
		}
		c.all = now
	} else {
		for topic := range c.due {
			topics = append(topics, topic)
		}
	}
	clear(c.due)
	c.last, c.turn = now, true
	return nil, topics, 0
}

// again gives back what could not be done.
func (c *control) again(s *ProducerBatch, topics []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s != nil {
		c.ids = slices.Insert(c.ids, 0, s)
	}
	for _, topic := range topics {
		c.due[topic] = struct{}{}
	}
	if topics != nil && len(topics) == 0 {
		c.all = time.Time{} // the brokers alone were asked for
	}
}

// refresh asks for metadata and publishes the new snapshot.
func (c *control) refresh(ctx context.Context, topics []string) error {
	question := c.questions.Add(1)
	res, err := over[*metadata.Response](ctx, c, &metadata.Request{TopicNames: topics})
	if err != nil {
		return err
	}
	s := c.cluster
	was := s.Metadata.Load()
	now := time.Now()
	is := was.Merge(res, func(t *Topic) bool { return t.Code == 0 || c.remembers(t.Name, now) }, now)
	is.witness = witness{c.session, question}
	s.Metadata.Store(is)
	close(was.Stale)
	if s.Options.OnMetadata != nil {
		s.Options.OnMetadata()
	}
	s.note(None, "")
	s.leadersChanged(is)
	// A broker that lags behind the controllers, or is cut off from them and gives no ids, is not
	// asked again while there are others.
	if is.contradicted() || now.Sub(c.series) > StaleAfter {
		c.series = now
		c.hangUp()
	}
	return nil
}

// remembers reports whether a topic is refreshed, or was asked for a short time ago.
func (c *control) remembers(topic string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, ok := c.topics[topic]
	return ok && (asked.IsZero() || now.Sub(asked) <= forgetAfter)
}

// identity asks for a producer id. The batch is delivered in any case.
func (c *control) identity(ctx context.Context, s *ProducerBatch) error {
	res, err := over[*initproducerid.Response](ctx, c, &initproducerid.Request{ProducerID: None, ProducerEpoch: None})
	switch {
	case err != nil:
		s.Answer = Answer{Kind: Unsent, Why: err}
	case res.ErrorCode == 0 && (res.ProducerID < 0 || res.ProducerEpoch < 0):
		s.Answer = Answer{Kind: Unsent, Why: fmt.Errorf("broker %s: the producer id is %d", c.addr, res.ProducerID)}
	default:
		s.Answer = Answer{
			Kind: Identity, Code: res.ErrorCode, Producer: res.ProducerID, Epoch: res.ProducerEpoch, Session: c.session,
		}
	}
	s.Deliver()
	return err
}

// Sleep waits for d; false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
