// Package client keeps the connections to one Kafka cluster, asks for metadata and producer ids,
// and sends sealed record batches to the leaders of their partitions. The caller decides what the
// answer to a batch means.
package client

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Client keeps the connections to one cluster: the control connection, which asks for metadata and
// producer ids, and two to each broker that leads a partition.
type Client struct {
	*cluster
	Control *control

	brokersMu sync.RWMutex
	brokers   map[int32]*Broker
	launch    func(*Broker) // starts a broker's workers; nil outside run
}

// NewClient makes a client. Nothing is connected before run.
func NewClient(opts Options) *Client {
	c := &Client{cluster: newCluster(opts), brokers: map[int32]*Broker{}}
	c.Control = newControl(c.cluster)
	return c
}

// Run keeps the connections until ctx is done. The error wraps conn.ErrLogin: the brokers refused
// the login for LoginTimeout and no connection was ever made.
func (c *Client) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
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
	group.Go(func() error { return c.Control.run(ctx) })
	err := group.Wait()
	c.brokersMu.Lock()
	c.launch = nil
	c.brokersMu.Unlock()
	working.Wait()
	return err
}

// Broker is a node that leads partitions: its queue, and the workers that send what is in it. What
// is queued when Run ends stays queued, for Withdraw.
type Broker struct {
	queue
	workers [workers]worker
}

// Broker returns the broker of a node.
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
			b.workers[i].init(c.cluster, c.Control, &b.queue, i)
		}
		c.brokers[node] = b
		if c.launch != nil {
			c.launch(b)
		}
	}
	return b
}
