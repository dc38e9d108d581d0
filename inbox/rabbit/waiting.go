// How many messages wait in the service's queues.

package rabbit

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const watchEvery = 15 * time.Second

// watchQueues looks at the queues from time to time, until over is closed.
func (c *Consumer) watchQueues(l *link, over <-chan struct{}) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		c.look(l)
		select {
		case <-ticker.C:
		case <-over:
			return
		}
	}
}

// look reports each queue. One that is missing is left out: the session ends for it, if it must.
func (c *Consumer) look(l *link) {
	var ch *amqp.Channel
	for _, q := range c.topology.queues {
		if ch == nil || ch.IsClosed() {
			var err error
			if ch, err = l.Channel(); err != nil {
				return
			}
		}
		if found, err := ch.QueueDeclarePassive(q.name, true, false, false, false, nil); err == nil {
			c.in.Waiting(q.name, int64(found.Messages))
		}
	}
	if ch != nil {
		_ = ch.Close() //nolint:errcheck // it is closed with the connection
	}
}
