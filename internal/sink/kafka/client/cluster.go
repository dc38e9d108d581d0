// The cluster that a client talks to, one for its life: what all connections share.

package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// cluster is what a client's connections share: how they are opened, the metadata of topics and
// leaders, and the number of connections.
type cluster struct {
	Options Options
	Dial    func(ctx context.Context, addr string) (Connection, error)

	id       atomic.Pointer[string] // nil: no broker has named it yet
	Metadata atomic.Pointer[Metadata]

	LastConfirm atomic.Int64 // Unix nanoseconds
	Connections atomic.Int64
	Pending     atomic.Int64 // records in requests that are under way

	stateMu sync.Mutex
	down    map[int32]string // why a broker is down, by node; None is the control connection
	logged  string
}

const NotConnected = "not connected yet"

func newCluster(opts Options) *cluster {
	c := &cluster{Options: opts, down: map[int32]string{None: NotConnected}, logged: NotConnected}
	c.Dial = func(ctx context.Context, addr string) (Connection, error) {
		return conn.Dial(ctx, &c.Options.Options, addr)
	}
	c.Metadata.Store(NewMetadata())
	return c
}

// RedpandaStarting is what some versions of Redpanda name before they have made an id (its
// handle_metadata).
const RedpandaStarting = "redpanda.initializing"

// connect opens a connection to a broker of the cluster that the client has begun with. Producer
// ids and sequence numbers mean something in the cluster that gave them only. Where addresses lead
// to another one meanwhile, they may be those of somebody else's producer, and a broker
// acknowledges what looks like that one's last batches and stores nothing. So each connection is
// asked, before anything is sent on it; a broker that does not name its cluster is believed.
func (c *cluster) connect(ctx context.Context, addr string) (Connection, error) {
	w, err := c.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := c.admit(ctx, w, addr); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (c *cluster) admit(ctx context.Context, w Connection, addr string) error {
	answer, err := w.RoundTrip(ctx, conn.DialTimeout, &metadata.Request{TopicNames: []string{}})
	if err != nil {
		return err
	}
	res, ok := answer.(*metadata.Response)
	if !ok {
		return fmt.Errorf("broker %s: the answer is a %T", addr, answer)
	}
	if res.ClusterID == "" || res.ClusterID == RedpandaStarting || c.id.CompareAndSwap(nil, &res.ClusterID) {
		return nil
	}
	if began := *c.id.Load(); began != res.ClusterID {
		return fmt.Errorf("%w: %s is of cluster %s, the relay has begun with %s", conn.ErrOtherCluster, addr, res.ClusterID, began)
	}
	return nil
}
