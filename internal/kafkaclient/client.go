// The client of the relay's sink: its connections to one Kafka cluster, and what its workers share.

package kafkaclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// Client keeps the connections to one cluster: the control connection, which asks for metadata and
// producer ids, and two connections to each broker that leads a partition.
type Client struct {
	Options Options
	Control *control
	Dial    func(ctx context.Context, addr string) (Connection, error) // tests replace it

	clusterID atomic.Pointer[string]   // the cluster's id; nil until a broker has named it
	Metadata  atomic.Pointer[Metadata] // the newest metadata; the control connection stores it

	Connections atomic.Int64 // connections that are open
	Pending     atomic.Int64 // records in requests that are not answered yet

	tailRoom chan struct{} // has room for whoever reads the end of a log

	brokersMu sync.RWMutex
	brokers   map[int32]*Broker
	launch    func(*Broker) // starts the workers of a broker; nil while Run does not run

	stateMu sync.Mutex
	// why each broker is down, by its node; None stands for the control connection, and allReplicas
	// for all partitions
	downReasons map[int32]string
	logged      string
}

// NotConnected is why a client is down before Run has connected it.
const NotConnected = "not connected yet"

// allReplicas is the node of NoteReplicas in Client.downReasons. It comes after all brokers.
const allReplicas = math.MaxInt32

// NewClient makes a client. Run connects it.
func NewClient(opts Options) *Client {
	c := &Client{
		Options: opts, tailRoom: make(chan struct{}, tailReaders), brokers: map[int32]*Broker{},
		downReasons: map[int32]string{None: NotConnected}, logged: NotConnected,
	}
	c.Dial = func(ctx context.Context, addr string) (Connection, error) {
		return Dial(ctx, &c.Options.DialOptions, addr)
	}
	c.Control = newControl(c)
	c.Metadata.Store(NewMetadata())
	return c
}

// Run keeps the connections until ctx is done. Its error wraps ErrLogin or ErrUnfit: the brokers
// have refused the login for LoginTimeout, or are unfit, and no connection was ever made.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	launch := func(b *Broker) {
		for i := range b.workers {
			working.Go(func() { b.workers[i].run(ctx) })
		}
	}
	c.brokersMu.Lock()
	c.launch = launch
	for _, b := range c.brokers {
		launch(b)
	}
	c.brokersMu.Unlock()
	err := c.Control.run(ctx)
	cancel()
	c.brokersMu.Lock()
	c.launch = nil
	c.brokersMu.Unlock()
	working.Wait()
	return err
}

// Broker is a node that leads partitions: the queue of its batches, and the workers that send them.
// Batches that are queued when Run ends stay queued, so that Withdraw can take them back.
type Broker struct {
	queue
	workers [workersPerBroker]worker
	tails   tailWorker
}

// Broker returns the broker of a node, and makes it at the first call.
func (c *Client) Broker(node int32) *Broker {
	c.brokersMu.RLock()
	b := c.brokers[node]
	c.brokersMu.RUnlock()
	if b != nil {
		return b
	}
	c.brokersMu.Lock()
	defer c.brokersMu.Unlock()
	if b = c.brokers[node]; b == nil {
		b = &Broker{queue: queue{Node: node}}
		for i := range b.workers {
			b.woken[i] = make(chan struct{}, 1)
			b.workers[i].init(c, &b.queue, i)
		}
		b.tails.turn = make(chan struct{}, 1)
		b.tails.init(c, &b.queue, workersPerBroker)
		c.brokers[node] = b
		if c.launch != nil {
			c.launch(b)
		}
	}
	return b
}

// Options configure a client.
type Options struct {
	DialOptions
	Brokers        []string      // host:port of brokers to ask first; they name the others
	ConfirmTimeout time.Duration // how long a broker may take to answer a produce request
	// The functions must not block. Explain makes one line of an error. The others may be nil.
	Explain func(error) string
	// a connection was opened; again says that there was one before
	OnConnected func(again bool)
	OnMetadata  func()                        // a broker has answered with metadata
	OnState     func(why string, brokers int) // Up, or its reason, has changed
}

// ErrOtherCluster says that a broker belongs to another cluster than the one the client first
// connected to.
var ErrOtherCluster = errors.New("a broker of another cluster")

// RedpandaStarting is the cluster id that some versions of Redpanda report before they have one.
const RedpandaStarting = "redpanda.initializing"

// connect opens a connection to a broker and checks that it is of the cluster that the client first
// connected to. Producer ids and sequence numbers belong to the cluster that gave them. In another
// cluster they may belong to another producer: a broker there acknowledges a batch that looks like
// one of that producer's last ones, and stores nothing. So each new connection first asks the
// broker for its cluster. A broker that does not name its cluster is accepted.
func (c *Client) connect(ctx context.Context, addr string) (Connection, error) {
	w, err := c.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	res, err := RoundTripAs[*metadata.Response](ctx, w, DialTimeout, &metadata.Request{TopicNames: []string{}})
	if err != nil {
		return nil, err
	}
	if res.ClusterID == "" || res.ClusterID == RedpandaStarting || c.clusterID.CompareAndSwap(nil, &res.ClusterID) {
		return w, nil
	}
	if began := *c.clusterID.Load(); began != res.ClusterID {
		w.Close()
		return nil, fmt.Errorf("%w: %s is of cluster %s, the relay has begun with %s", ErrOtherCluster, addr, res.ClusterID, began)
	}
	return w, nil
}

// countConnection counts a new connection and reports it to the options' OnConnected.
func (c *Client) countConnection(again bool) {
	c.Connections.Add(1)
	if c.Options.OnConnected != nil {
		c.Options.OnConnected(again)
	}
}

// noteBroker records why a broker cannot be reached, or with "" that it can. Node None stands for
// the control connection.
func (c *Client) noteBroker(node int32, why string) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if c.downReasons[node] == why {
		return
	}
	if why == "" {
		delete(c.downReasons, node)
	} else {
		c.downReasons[node] = why
	}
	c.logState()
}

// NoteReplicas records why no partition takes batches although the leaders are reached, or with ""
// that some partition does.
func (c *Client) NoteReplicas(why string) { c.noteBroker(allReplicas, why) }

// leadersChanged forgets why brokers are down that no longer lead a partition of ours. The control
// connection calls it after each answer with metadata.
func (c *Client) leadersChanged(known *Metadata) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	for node := range c.downReasons {
		if node != None && node != allReplicas && !known.leads(node) {
			delete(c.downReasons, node)
		}
	}
	c.logState()
}

// Up reports whether the cluster answers, every broker that leads a partition of ours is reached
// and some partition takes batches, and if not, why.
func (c *Client) Up() (ok bool, why string) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	why = c.firstReason()
	return why == "", why
}

// firstReason returns the reason of the first node that is down. The control connection comes
// before all brokers.
func (c *Client) firstReason() string {
	first := int32(-2)
	for node := range c.downReasons {
		if first == -2 || node < first {
			first = node
		}
	}
	return c.downReasons[first]
}

// logState calls OnState when Up or its reason has changed.
func (c *Client) logState() {
	why := c.firstReason()
	if why == c.logged {
		return
	}
	c.logged = why
	if c.Options.OnState != nil {
		c.Options.OnState(why, len(c.Metadata.Load().Brokers))
	}
}

// ProducerBatch is a sealed record batch on its way to the leader of its partition, or a request
// for a producer id. A lane reuses it for the next batch of the partition. Between Push (or
// Identify) and Deliver it belongs to the client, unless Withdraw takes it back.
type ProducerBatch struct {
	Topic     string
	Partition int32

	Bytes   []byte // the sealed batch
	Records int    // in the batch
	Tried   bool   // the bytes were in a request, so they may be in the log
	Session int64  // of the control connection that the producer id came from

	// Slow is set when the broker has waited in vain for the partition's replicas, and has stored
	// no batch since. It outlives a call, because a pause repairs no replica. Only the answer to
	// this batch sets it: without an answer it is not known which partition of the request was
	// slow.
	Slow bool

	Reader  bytes.Reader // of Bytes, for the request
	Answer  Answer
	Deliver func() // gives the batch back to its owner, with Answer set
}

// Answer is what became of a batch that was pushed. Which fields are set depends on Kind.
type Answer struct {
	Kind     AnswerKind
	Code     int16   // of Answered and Identity: the broker's error code
	Message  string  // of Answered: the broker's text, or ""
	Culprits []int32 // of Answered: the records that the broker names, by their place in the batch
	Why      error   // of Unsent and Lost
	Cut      bool    // of Lost: the broker ended a new connection over this batch alone
	Producer int64   // of Identity with code 0
	Epoch    int16
	Session  int64 // of Identity: the number of the control connection that it came from
}

// AnswerKind says whether the batch may be written, and who has answered.
type AnswerKind uint8

const (
	Unsent   AnswerKind = iota // certainly not written
	Lost                       // perhaps written: no answer came
	Answered                   // the leader has answered for the batch
	Identity                   // a broker has answered with a producer id or an error
	Outdated                   // not written: the producer id may belong to another producer now
)

// Duplicate reports whether the broker has called the batch a duplicate.
func (a *Answer) Duplicate() bool { return kafkago.Error(a.Code) == kafkago.DuplicateSequenceNumber }

// samePartition reports whether both batches are for one partition. Two lanes can have such batches
// after a topic was re-created with fewer partitions.
func (b *ProducerBatch) samePartition(other *ProducerBatch) bool {
	return b.Partition == other.Partition && b.Topic == other.Topic
}
