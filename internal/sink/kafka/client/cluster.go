// The cluster that a client talks to, one for its life: what all connections share, which brokers
// are reached, and why the others are not.

package client

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
)

// Options configure a client.
type Options struct {
	conn.Options
	Brokers        []string      // host:port, the first to ask; they name the others
	ConfirmTimeout time.Duration // of a broker's answer to a produce request
	Log            *zap.Logger
	OnConnected    func(again bool) // a connection is open; again: there was one before. May be nil
	OnMetadata     func()           // metadata was answered. May be nil
}

// cluster is what a client's connections share: how they are opened, the metadata of topics and
// leaders, and the number of connections.
type cluster struct {
	Options Options
	Dial    func(ctx context.Context, addr string) (Connection, error)

	id       atomic.Pointer[string] // nil: no broker has named it yet
	Metadata atomic.Pointer[Metadata]

	Connections atomic.Int64
	Pending     atomic.Int64 // records in requests that are under way

	stateMu sync.Mutex
	// why a broker is down, by node; None is the control connection, replicas all partitions
	down   map[int32]string
	logged string
}

const NotConnected = "not connected yet"

// replicas is the node of NoteReplicas in cluster.down. It comes after all brokers.
const replicas = math.MaxInt32

func newCluster(opts Options) *cluster {
	c := &cluster{Options: opts, down: map[int32]string{None: NotConnected}, logged: NotConnected}
	c.Dial = func(ctx context.Context, addr string) (Connection, error) {
		return conn.Dial(ctx, &c.Options.Options, addr)
	}
	c.Metadata.Store(NewMetadata())
	return c
}

// RedpandaStarting is the cluster id that some versions of Redpanda name before they have one.
const RedpandaStarting = "redpanda.initializing"

// connect opens a connection to a broker of the cluster that the client has begun with. Producer
// ids and sequence numbers belong to the cluster that gave them. In another cluster they may belong
// to another producer. A broker there acknowledges a batch that looks like one of that producer's
// last ones, and stores nothing. So each new connection first asks the broker for its cluster. A
// broker that does not name its cluster is accepted.
func (c *cluster) connect(ctx context.Context, addr string) (Connection, error) {
	w, err := c.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	res, err := conn.RoundTripAs[*metadata.Response](ctx, w, conn.DialTimeout, &metadata.Request{TopicNames: []string{}})
	if err != nil {
		return nil, err
	}
	if res.ClusterID == "" || res.ClusterID == RedpandaStarting || c.id.CompareAndSwap(nil, &res.ClusterID) {
		return w, nil
	}
	if began := *c.id.Load(); began != res.ClusterID {
		w.Close()
		return nil, fmt.Errorf("%w: %s is of cluster %s, the relay has begun with %s", conn.ErrOtherCluster, addr, res.ClusterID, began)
	}
	return w, nil
}

// connected counts a connection.
func (c *cluster) connected(again bool) {
	c.Connections.Add(1)
	if c.Options.OnConnected != nil {
		c.Options.OnConnected(again)
	}
}

// note records why a broker cannot be reached; "" when it can. Node None is the control connection.
func (c *cluster) note(node int32, why string) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if c.down[node] == why {
		return
	}
	if why == "" {
		delete(c.down, node)
	} else {
		c.down[node] = why
	}
	c.logState()
}

// NoteReplicas records why no partition takes batches although its leader is reached; "" when one
// does.
func (c *cluster) NoteReplicas(why string) { c.note(replicas, why) }

// leadersChanged forgets why brokers are down that no longer lead a partition of ours.
func (c *cluster) leadersChanged(known *Metadata) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	for node := range c.down {
		if node != None && node != replicas && !known.leads(node) {
			delete(c.down, node)
		}
	}
	c.logState()
}

// Up reports whether the cluster answers, every broker that leads a partition of ours is reached
// and some partition takes batches, and if not, why.
func (c *cluster) Up() (ok bool, why string) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	why = c.why()
	return why == "", why
}

// why returns the reason of the first node that is down. The control connection comes before all
// brokers.
func (c *cluster) why() string {
	first := int32(-2)
	for node := range c.down {
		if first == -2 || node < first {
			first = node
		}
	}
	return c.down[first]
}

// logState writes one line when Up or its reason has changed.
func (c *cluster) logState() {
	why := c.why()
	if why == c.logged {
		return
	}
	c.logged = why
	if why == "" {
		c.Options.Log.Info("brokers connected", zap.Int("brokers", len(c.Metadata.Load().Brokers)))
		return
	}
	c.Options.Log.Warn("broker unavailable", zap.String("reason", why))
}
