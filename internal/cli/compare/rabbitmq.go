// Reading the exchanges of one side from RabbitMQ.

package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// rabbitSide consumes an exclusive queue of its own, bound to some exchanges. The queue is deleted
// with the connection.
type rabbitSide struct {
	session    *conn.Session
	exchanges  []string
	deliveries <-chan amqp.Delivery
	number     int
}

const (
	// rabbitPrefetch bounds what the broker sends ahead of what was taken. In front of a side that
	// waits, the queue grows at the broker.
	rabbitPrefetch = 100
	rabbitPatience = 20 * time.Second // for one answer
)

func openRabbitSide(ctx context.Context, f *compareFlags, c *config.Config, exchanges []string) (side, error) {
	d := &conn.Dialer{
		URLs: []string{f.rabbitmq}, ConnectionName: "cdc-relay/compare", ConfirmTimeout: rabbitPatience, Lanes: 1,
		TLS: sink.TLS{}.Load(""), Admit: func(string, string) error { return nil },
	}
	if r := rabbitOf(c); r != nil {
		d.TLS = r.TLS.Load("sink.rabbitmq.tls")
		if f.rabbitmq == "" {
			var err error
			if d.URLs, err = r.Addresses(); err != nil {
				return nil, err
			}
			d.Credentials = r.Credentials()
		}
	}
	session, err := d.Dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	s := &rabbitSide{session: session, exchanges: exchanges}
	binding, cancel := context.WithTimeout(ctx, rabbitPatience)
	defer cancel()
	defer context.AfterFunc(binding, func() { session.Kill(binding.Err()) })()
	if err := s.bind(binding, f.routingKeys); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *rabbitSide) bind(ctx context.Context, keys []string) error {
	opened, err := s.session.Take(ctx, conn.Lanes, true)
	if err != nil {
		return err
	}
	channel := opened.AMQP
	queue, err := channel.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return fmt.Errorf("declare an exclusive queue: %w", err)
	}
	for _, exchange := range s.exchanges {
		for _, key := range keys {
			if err := channel.QueueBind(queue.Name, key, exchange, false, nil); err != nil {
				return fmt.Errorf("bind to exchange %q: %w", exchange, err)
			}
		}
	}
	if err := channel.Qos(rabbitPrefetch, 0, false); err != nil {
		return fmt.Errorf("set prefetch: %w", err)
	}
	s.deliveries, err = channel.Consume(queue.Name, "", false, true, false, false, nil)
	return err
}

func (s *rabbitSide) close() { s.session.Close(2 * time.Second) }

func (s *rabbitSide) partitions() []int { return nil }

// read acknowledges the messages that it has handed over. When the connection is lost, the queue
// and its messages are lost too.
func (s *rabbitSide) read(ctx context.Context, messages chan<- compare.Message, caughtUp chan<- struct{}) error {
	close(caughtUp)
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-s.deliveries:
			if !ok {
				return s.lost(ctx)
			}
			s.number++
			select {
			case messages <- s.message(&d):
			case <-ctx.Done():
				return nil
			}
			if d.Ack(false) != nil {
				return s.lost(ctx)
			}
		}
	}
}

func (s *rabbitSide) lost(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil // asked for
	case <-s.session.Gone:
		return fmt.Errorf("the queue is gone with what was in it: %s", s.session.Reason())
	case <-time.After(time.Second):
		return errors.New("the consumer was cancelled, and the queue is gone with what was in it")
	}
}
