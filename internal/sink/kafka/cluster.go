// The cluster that the sink publishes to: one for its life.

package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go/protocol/metadata"
)

var errOtherCluster = errors.New("a broker of another cluster")

// redpandaStarting is what some versions of Redpanda name before they have made an id (its handle_metadata).
const redpandaStarting = "redpanda.initializing"

// connect opens a connection to a broker of the cluster that the sink has begun with. Producer ids and sequence numbers mean
// something in the cluster that gave them only. Where addresses lead to another one meanwhile, they may be those of somebody
// else's producer, and a broker acknowledges what looks like that one's last batches and stores nothing. So each connection
// is asked, before anything is sent on it; a broker that does not name its cluster is believed.
func (s *Sink) connect(ctx context.Context, addr string) (wire, error) {
	w, err := s.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := s.admit(ctx, w, addr); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (s *Sink) admit(ctx context.Context, w wire, addr string) error {
	answer, err := w.roundTrip(ctx, dialTimeout, &metadata.Request{TopicNames: []string{}})
	if err != nil {
		return err
	}
	res, ok := answer.(*metadata.Response)
	if !ok {
		return fmt.Errorf("broker %s: the answer is a %T", addr, answer)
	}
	if res.ClusterID == "" || res.ClusterID == redpandaStarting || s.cluster.CompareAndSwap(nil, &res.ClusterID) {
		return nil
	}
	if began := *s.cluster.Load(); began != res.ClusterID {
		return fmt.Errorf("%w: %s is of cluster %s, the relay has begun with %s", errOtherCluster, addr, res.ClusterID, began)
	}
	return nil
}
