// A cluster of RabbitMQ nodes.

package rabbitserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// RabbitCluster is some brokers that are one: each has its own address, all have the same virtual
// hosts, exchanges and queues. A quorum queue is on all of them.
type RabbitCluster struct{ Nodes []*Rabbit }

// StartRabbitCluster starts a cluster of n brokers with fresh data. Of two, either is too few for a
// quorum queue.
func StartRabbitCluster(ctx context.Context, n int, opt Options) (_ *RabbitCluster, err error) {
	c := &RabbitCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	for i := range n {
		var first *Rabbit
		if i > 0 {
			first = c.Nodes[0]
		}
		node, err := startRabbitMQ(ctx, opt, first)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, node)
		if first == nil {
			continue
		}
		for _, command := range []string{"stop_app", "join_cluster " + first.node, "start_app"} {
			if _, err := node.Ctl(ctx, strings.Fields(command)...); err != nil {
				return nil, fmt.Errorf("join cluster: %w", err)
			}
		}
	}
	return c, nil
}

// Close ends all of them.
func (c *RabbitCluster) Close() error {
	var errs []error
	for _, node := range c.Nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}
