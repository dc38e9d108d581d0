// One broker of the cluster: its queue, and the two workers that send what is in it.

package client

import (
	"context"
	"sync"
)

// Broker is a node that leads partitions.
type Broker struct {
	queue
	workers [workers]worker
}

func newBroker(cluster *cluster, control *control, node int32) *Broker {
	b := &Broker{queue: queue{Node: node}}
	for i := range b.workers {
		b.woken[i] = make(chan struct{}, 1)
		b.workers[i].init(cluster, control, &b.queue, i)
	}
	return b
}

// Run runs the workers until ctx is done. What is queued then stays queued, for withdraw.
func (b *Broker) Run(ctx context.Context) {
	var running sync.WaitGroup
	for i := range b.workers {
		running.Go(func() { b.workers[i].run(ctx) })
	}
	running.Wait()
}
