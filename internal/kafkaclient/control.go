// The control connection: it asks any broker of the cluster for metadata and producer ids. Workers
// and lanes wait for its answers, so it bounds each request, changes the broker when one does not
// answer, and ends Run when the login is refused for good.

package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

const (
	RefreshEvery = 30 * time.Second // how often all topics are asked for when nobody asks
	// the shortest time between two refreshes that ended connections cause
	endedEvery = 2 * time.Second
	AskEvery   = 10 * time.Millisecond // the shortest time between two requests for metadata
	// ControlFirst is the first timeout of an answer. It doubles with each answer that does not
	// come.
	ControlFirst   = time.Second
	ControlTimeout = 16 * time.Second // the longest timeout of an answer
	// StaleAfter is how long there may be questions without a pause before another broker is asked.
	StaleAfter = 10 * time.Second
	// controlDial is the first timeout of a connect. It doubles with each round over the brokers,
	// twice at most.
	controlDial = 3 * time.Second
	// forgetAfter is how long a topic in error is remembered that no lane asks for.
	forgetAfter = 30 * time.Second
	// LoginTimeout ends Run when the brokers have refused the login for this long, or all were
	// unfit, and no connection was ever made. An address may lead to several of them, whose
	// settings are being changed one by one.
	LoginTimeout = time.Minute
)

// control keeps one connection to any broker. Its goroutine, run, sends the requests. Lanes and the
// reader call the exported methods.
type control struct {
	client *Client

	mu sync.Mutex
	// topics has the topics that are refreshed, with the time when a lane last asked for each; zero
	// means that the topic is always refreshed.
	topics map[string]time.Time
	due    map[string]struct{} // topics to ask for now
	ids    []*ProducerBatch    // batches that wait for a producer id
	woken  chan struct{}       // has room for one signal

	questions atomic.Int64 // requests for metadata so far

	// The fields below belong to the goroutine.
	conn          Connection
	addr          string
	session       int64     // the number of this connection
	askedAt       time.Time // when metadata was last asked for
	allAskedAt    time.Time // when all topics were last asked for
	idsTurn       bool      // metadata was asked for since the last producer id, so an id is next
	busySince     time.Time // since when questions come without a pause
	unanswered    int       // answers in a row that did not come
	fails         int       // rounds over all brokers in a row that reached none of them
	refusedSince  time.Time // since when the login is refused, or all are unfit; zero: it is not so
	unfitSince    time.Time // since when all brokers are unfit; zero: they are not
	everConnected bool      // a connection was made at least once
}

func newControl(client *Client) *control {
	return &control{
		client: client, topics: map[string]time.Time{}, due: map[string]struct{}{}, woken: make(chan struct{}, 1),
	}
}

// KeepFresh lets the metadata of a topic be refreshed from now on, as long as the client runs.
func (c *control) KeepFresh(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[topic] = time.Time{}
}

// RequestMetadata lets the metadata of a topic be asked for soon. The answer is in a later Metadata
// than the present one.
func (c *control) RequestMetadata(topic string) {
	c.mu.Lock()
	if at, known := c.topics[topic]; !known || !at.IsZero() {
		c.topics[topic] = time.Now()
	}
	c.due[topic] = struct{}{}
	c.mu.Unlock()
	Notify(c.woken)
}

// Identify asks for a producer id for a batch. The batch is delivered with an answer of kind
// Identity, or Unsent when no broker has answered.
func (c *control) Identify(b *ProducerBatch) {
	c.mu.Lock()
	c.ids = append(c.ids, b)
	c.mu.Unlock()
	Notify(c.woken)
}

// Withdraw takes back a batch that was given to Identify. It returns false when the request for the
// id is under way already.
func (c *control) Withdraw(b *ProducerBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.ids, b)
	if i >= 0 {
		c.ids = slices.Delete(c.ids, i, i+1)
	}
	return i >= 0
}

// awaitWitness asks for a topic's metadata and waits for an answer to a question that was sent
// after the call. It returns the session of that answer. A worker calls it after it has connected:
// see worker.dropOutdated.
func (c *control) awaitWitness(ctx context.Context, topic string) (session int64, err error) {
	asked := c.questions.Load()
	for {
		known := c.client.Metadata.Load()
		if known.witness.question > asked {
			return known.witness.session, nil
		}
		c.RequestMetadata(topic)
		select {
		case <-known.Stale:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// run asks until ctx is done. It returns an error only when the login is refused for good.
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
			c.hangUp() // otherwise the next watch would end at once
			c.allAskedAt = c.askedAt.Add(endedEvery - RefreshEvery)
		}
		if ctx.Err() != nil {
			return nil
		}
		pause, err := c.sendDue(ctx)
		if err != nil {
			return err
		}
		timer.Reset(pause)
	}
}

// sendDue sends the requests that are due. It returns how long run may then pause, unless it is
// woken.
func (c *control) sendDue(ctx context.Context) (pause time.Duration, err error) {
	for ctx.Err() == nil {
		b, topics, pause := c.nextQuestion(time.Now())
		if b == nil && topics == nil {
			return pause, nil
		}
		err := c.connect(ctx)
		switch {
		case err != nil:
		case b != nil:
			err = c.requestIdentity(ctx, b)
			b = nil
		default:
			if err = c.refreshMetadata(ctx, topics); err == nil {
				topics = nil
			}
		}
		c.putBack(b, topics)
		if err == nil {
			c.fails = 0
			continue
		}
		if stop := c.loginRefused(err); stop != nil {
			return 0, stop
		}
		if c.conn == nil && c.fails > 0 {
			// No broker answers. A new question does not shorten this pause.
			if !Sleep(ctx, c.roundPause()) {
				return 0, nil
			}
		}
	}
	return 0, nil
}

// nextQuestion returns what to do now: ask for an id for a batch, ask for metadata of topics, or
// pause. When an id and metadata are both wanted they take turns, because batches ask again and
// again while there are no ids.
func (c *control) nextQuestion(now time.Time) (b *ProducerBatch, topics []string, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	everything := now.Sub(c.allAskedAt) >= RefreshEvery
	due := (everything || len(c.due) > 0) && now.Sub(c.askedAt) >= AskEvery
	if len(c.ids) > 0 && (!due || c.idsTurn) {
		b, c.idsTurn = c.ids[0], false
		c.ids = slices.Delete(c.ids, 0, 1)
		return b, nil, 0
	}
	if !everything && len(c.due) == 0 {
		return nil, nil, RefreshEvery - now.Sub(c.allAskedAt)
	}
	since := now.Sub(c.askedAt)
	if since < AskEvery {
		return nil, nil, AskEvery - since
	}
	if since > time.Second {
		c.busySince = now
	}
	// never nil, which would ask for all topics of the cluster
	topics = make([]string, 0, len(c.due))
	if everything {
		for topic, asked := range c.topics {
			if !asked.IsZero() && now.Sub(asked) > forgetAfter {
				delete(c.topics, topic)
				continue
			}
			topics = append(topics, topic)
		}
		c.allAskedAt = now
	} else {
		for topic := range c.due {
			topics = append(topics, topic)
		}
	}
	clear(c.due)
	c.askedAt, c.idsTurn = now, true
	return nil, topics, 0
}

// putBack puts back the questions that were not answered.
func (c *control) putBack(b *ProducerBatch, topics []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b != nil {
		c.ids = slices.Insert(c.ids, 0, b)
	}
	for _, topic := range topics {
		c.due[topic] = struct{}{}
	}
	if topics != nil && len(topics) == 0 {
		// an empty list asks for the brokers alone, which is due with all topics
		c.allAskedAt = time.Time{}
	}
}

// refreshMetadata asks for metadata and publishes it.
func (c *control) refreshMetadata(ctx context.Context, topics []string) error {
	question := c.questions.Add(1)
	res, err := askControl[*metadata.Response](ctx, c, &metadata.Request{TopicNames: topics})
	if err != nil {
		return err
	}
	was := c.client.Metadata.Load()
	now := time.Now()
	is := was.Merge(res, func(t *Topic) bool { return t.Code == 0 || c.isRefreshed(t.Name, now) }, now)
	is.witness = witness{c.session, question}
	c.client.Metadata.Store(is)
	close(was.Stale)
	if c.client.Options.OnMetadata != nil {
		c.client.Options.OnMetadata()
	}
	c.client.noteBroker(None, "")
	c.client.leadersChanged(is)
	// A broker may lag behind the controllers, or be cut off from them and give no ids. So another
	// broker is asked next.
	if is.showsOlderState() || now.Sub(c.busySince) > StaleAfter {
		c.busySince = now
		c.hangUp()
	}
	return nil
}

// isRefreshed reports whether a topic is refreshed, or was asked for within forgetAfter.
func (c *control) isRefreshed(topic string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, ok := c.topics[topic]
	return ok && (asked.IsZero() || now.Sub(asked) <= forgetAfter)
}

// requestIdentity asks for a producer id. It always delivers the batch.
func (c *control) requestIdentity(ctx context.Context, b *ProducerBatch) error {
	res, err := askControl[*initproducerid.Response](ctx, c, &initproducerid.Request{ProducerID: None, ProducerEpoch: None})
	switch {
	case err != nil:
		b.Answer = Answer{Kind: Unsent, Why: err}
	case res.ErrorCode == 0 && (res.ProducerID < 0 || res.ProducerEpoch < 0):
		b.Answer = Answer{Kind: Unsent, Why: fmt.Errorf("broker %s: the producer id is %d", c.addr, res.ProducerID)}
	default:
		b.Answer = Answer{
			Kind: Identity, Code: res.ErrorCode, Producer: res.ProducerID, Epoch: res.ProducerEpoch, Session: c.session,
		}
	}
	b.Deliver()
	return err
}

// Sleep waits for d. It returns false when ctx ends first.
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

// connect makes sure that there is a connection. It keeps the present one if that can be used.
// Otherwise it tries the known brokers, and then the configured ones.
func (c *control) connect(ctx context.Context) error {
	if c.conn != nil && c.conn.Usable() {
		return nil
	}
	c.hangUp()
	limit := min(controlDial<<min(c.fails, 2), DialTimeout)
	var failures []error
	for _, addr := range c.candidates() {
		bounded, cancel := context.WithTimeout(ctx, limit)
		opened, err := c.client.connect(bounded, addr)
		cancel()
		if err == nil {
			c.conn, c.addr = opened, addr
			c.session++
			c.client.countConnection(c.everConnected)
			c.everConnected = true
			c.refusedSince, c.unfitSince = time.Time{}, time.Time{}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures = append(failures, err)
	}
	c.fails++
	err := errors.Join(failures...)
	if slices.ContainsFunc(failures, func(err error) bool { return !isUnfit(err) }) {
		c.unfitSince = time.Time{}
	} else if c.unfitSince.IsZero() {
		c.unfitSince = time.Now()
	}
	c.client.noteBroker(None, c.client.Options.Explain(err))
	return err
}

// candidates returns the addresses to try: the known brokers in random order, then the configured
// ones. The address that was used last comes last.
func (c *control) candidates() []string {
	var all []string
	for _, addr := range c.client.Metadata.Load().Brokers {
		all = append(all, addr)
	}
	slices.Sort(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, addr := range c.client.Options.Brokers {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	if i := slices.Index(all, c.addr); i >= 0 {
		all = append(slices.Delete(all, i, i+1), c.addr)
	}
	return all
}

func (c *control) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
		c.client.Connections.Add(-1)
	}
}

// askControl sends a request over the control connection. After an error the connection is closed.
func askControl[R protocol.Message](ctx context.Context, c *control, req protocol.Message) (R, error) {
	res, err := RoundTripAs[R](ctx, c.conn, min(ControlFirst<<min(c.unanswered, 4), ControlTimeout), req)
	if err != nil {
		c.unanswered++
		c.hangUp()
		return res, err
	}
	c.unanswered = 0
	return res, nil
}

// roundPause returns the pause after a round that has reached no broker.
func (c *control) roundPause() time.Duration {
	d := min(25*time.Millisecond<<min(c.fails, 8), time.Second)
	if !c.refusedSince.IsZero() {
		d = time.Second
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter is no secret
}

// loginRefused returns an error, which ends run, when the login was refused for LoginTimeout, or
// all brokers were unfit for as long, and no connection was ever made. Otherwise it returns nil.
func (c *control) loginRefused(err error) error {
	refused, unfit := errors.Is(err, ErrLogin), !c.unfitSince.IsZero()
	if c.everConnected || !refused && !unfit {
		c.refusedSince = time.Time{}
		return nil
	}
	if c.refusedSince.IsZero() {
		c.refusedSince = time.Now()
	}
	switch {
	case unfit && time.Since(c.unfitSince) >= LoginTimeout:
		return fmt.Errorf("%w: %w", ErrUnfit, err)
	case refused && time.Since(c.refusedSince) >= LoginTimeout:
		return err
	}
	return nil
}
