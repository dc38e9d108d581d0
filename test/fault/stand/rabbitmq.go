// RabbitMQ as the place of a stand.

package stand

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// RabbitMQ is a stand's virtual host.
type RabbitMQ struct {
	Server *rabbitserver.Rabbit
	VHost  string // URL, not through the proxy
	NoUser bool   // the relay's address has no user in it: Sink names one. Set before Start
}

// SharedRabbitMQ is the one that all tests of the process use that neither stop nor reconfigure it.
func SharedRabbitMQ(t testing.TB) Place {
	t.Helper()
	return OnRabbitMQ(servers.SharedRabbitMQ(t))
}

// OnRabbitMQ makes places on a server: each stand has a virtual host of its own, behind a proxy.
func OnRabbitMQ(server *rabbitserver.Rabbit) Server {
	return rabbitMQ{server, consumers.ConsumerOptions{}}
}

// OnRabbitMQReading is OnRabbitMQ with another queue than the usual one; the address in queue does
// not matter.
func OnRabbitMQReading(server *rabbitserver.Rabbit, queue consumers.ConsumerOptions) Server {
	return rabbitMQ{server, queue}
}

type rabbitMQ struct {
	server *rabbitserver.Rabbit
	queue  consumers.ConsumerOptions
}

func (r rabbitMQ) open(s *Stand) {
	s.T.Helper()
	s.RabbitMQ = &RabbitMQ{Server: r.server, VHost: r.server.VHost(s.T)}
	s.Broker = s.Proxy(r.server.Addr())
	queue := r.queue
	queue.URL = s.RabbitMQ.VHost
	consumer, err := consumers.StartConsumer(s.Context(), queue)
	s.Must(err)
	s.Consumer = consumer
}

func (r rabbitMQ) sink(s *Stand) string {
	s.T.Helper()
	u, err := url.Parse(s.RabbitMQ.VHost)
	s.Must(err)
	u.Host = s.Broker.Addr()
	if s.RabbitMQ.NoUser {
		u.User = nil
	}
	return fmt.Sprintf("rabbitmq: {url: '%s'%s}", u, more(s.Sink))
}

func (r rabbitMQ) Start(ctx context.Context) error { return r.server.Start(ctx) }
func (r rabbitMQ) Kill() error                     { return r.server.Kill() }

// AMQP runs do on a channel of its own.
func (s *Stand) AMQP(do func(*amqp.Channel) error) {
	s.T.Helper()
	conn, err := amqp.Dial(s.RabbitMQ.VHost)
	s.Must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	s.Must(err)
	s.Must(do(ch))
}

// Unbind and Bind take from and give to the queue of the orders what has a routing key, of an
// exchange.
func (s *Stand) Unbind(exchange, routingKey string) {
	s.T.Helper()
	s.AMQP(func(ch *amqp.Channel) error { return ch.QueueUnbind("orders", routingKey, exchange, nil) })
}

// Bind is the contrary of Unbind.
func (s *Stand) Bind(exchange, routingKey string) {
	s.T.Helper()
	s.AMQP(func(ch *amqp.Channel) error { return ch.QueueBind("orders", routingKey, exchange, false, nil) })
}

// DeclareExchange makes an exchange without a queue.
func (s *Stand) DeclareExchange(exchange string) {
	s.T.Helper()
	s.AMQP(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil)
	})
}

// MakeExchange makes an exchange all of whose messages the queue of the orders takes.
func (s *Stand) MakeExchange(name string) {
	s.T.Helper()
	s.DeclareExchange(name)
	s.Bind(name, "#")
}

// DeleteExchange deletes an exchange with its bindings.
func (s *Stand) DeleteExchange(name string) {
	s.T.Helper()
	s.AMQP(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) })
}

// MakeQueue makes a queue that takes a routing key of an exchange.
func (s *Stand) MakeQueue(name, exchange, routingKey string, args amqp.Table) {
	s.T.Helper()
	s.AMQP(func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			return err
		}
		return ch.QueueBind(name, routingKey, exchange, false, nil)
	})
}

// Also has the consumer take the messages of one queue more.
func (s *Stand) Also(queue string) {
	s.T.Helper()
	consumer, ok := s.Consumer.(*consumers.Consumer)
	if !ok {
		s.T.Fatal("there are no queues")
	}
	s.Must(consumer.Also(queue))
}
