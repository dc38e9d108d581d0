package stand

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// RabbitMQ is a stand's virtual host.
type RabbitMQ struct {
	VHost  string // URL, not through the proxy
	NoUser bool   // the relay's address has no user in it: Sink names one. Set before Start
}

// SharedRabbitMQ is the one that all tests of the process use that neither stop nor reconfigure it.
func SharedRabbitMQ(t testing.TB) Place {
	t.Helper()
	return OnRabbitMQ(devenv.SharedRabbitMQ(t))
}

// OnRabbitMQ makes places on a server: each stand has a virtual host of its own, behind a proxy.
func OnRabbitMQ(server *devenv.Rabbit) Server { return rabbitMQ{server, devenv.ConsumerOptions{}} }

// OnRabbitMQReading is OnRabbitMQ with another queue than the usual one; the address in queue does not matter.
func OnRabbitMQReading(server *devenv.Rabbit, queue devenv.ConsumerOptions) Server {
	return rabbitMQ{server, queue}
}

type rabbitMQ struct {
	server *devenv.Rabbit
	queue  devenv.ConsumerOptions
}

func (r rabbitMQ) open(s *Stand) {
	s.T.Helper()
	s.RabbitMQ = &RabbitMQ{VHost: r.server.VHost(s.T)}
	s.Broker = s.Proxy(r.server.Addr())
	queue := r.queue
	queue.URL = s.RabbitMQ.VHost
	consumer, err := devenv.StartConsumer(s.Within(time.Minute), queue)
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

func (r rabbitMQ) Stop(ctx context.Context) error  { return r.server.Stop(ctx) }
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
