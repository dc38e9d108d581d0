// Reading the exchanges of one side from RabbitMQ.

package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// rabbitSide consumes an exclusive queue of its own, bound to some exchanges. The queue is deleted
// with the connection.
type rabbitSide struct {
	conn       *amqp.Connection
	exchanges  []string
	deliveries <-chan amqp.Delivery
	gone       chan *amqp.Error
	number     int
}

// rabbitPrefetch bounds what the broker sends ahead of what was taken. In front of a side that
// waits, the queue grows at the broker.
const rabbitPrefetch = 100

func openRabbitSide(ctx context.Context, f *compareFlags, c *config.Config, exchanges []string) (side, error) {
	conn, err := dialRabbit(ctx, f, c)
	if err != nil {
		return nil, err
	}
	s := &rabbitSide{conn: conn, exchanges: exchanges, gone: conn.NotifyClose(make(chan *amqp.Error, 1))}
	stop := context.AfterFunc(ctx, s.close)
	defer stop()
	if err := s.bind(f.routingKeys); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *rabbitSide) bind(keys []string) error {
	channel, err := s.conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
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

// dialRabbit connects to the first address that takes a connection.
func dialRabbit(ctx context.Context, f *compareFlags, c *config.Config) (*amqp.Connection, error) {
	urls := []string{f.rabbitmq}
	cfg := amqp.Config{Heartbeat: 10 * time.Second, Locale: "en_US"}
	var login func() (user, password string, err error)
	if c != nil && c.Sink.RabbitMQ != nil {
		r := c.Sink.RabbitMQ
		if f.rabbitmq == "" {
			urls = urls[:0]
			for _, u := range r.URLs {
				url, err := u.Read()
				if err != nil {
					return nil, err
				}
				urls = append(urls, url)
			}
			login = r.Credentials()
		}
		secure, err := wiring.BrokerTLS("sink.rabbitmq.tls", r.TLS)()
		if err != nil {
			return nil, err
		}
		cfg.TLSClientConfig = secure
	}
	var failures []error
	for _, url := range urls {
		conn, err := dialRabbitAt(ctx, url, cfg, login)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func dialRabbitAt(ctx context.Context, url string, cfg amqp.Config, login func() (user, password string, err error)) (*amqp.Connection, error) {
	uri, err := amqp.ParseURI(url)
	if err != nil {
		// the library's error may quote the password
		return nil, errors.New("the address of RabbitMQ is not amqp://USER:PASSWORD@HOST:PORT/VHOST")
	}
	user, password := uri.Username, uri.Password
	if login != nil {
		if user, password, err = login(); err != nil {
			return nil, err
		}
	}
	addr := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	cfg.Vhost, cfg.SASL = uri.Vhost, []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}}
	for _, mechanism := range uri.AuthMechanism {
		if strings.EqualFold(mechanism, "external") {
			cfg.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
		}
	}
	cfg.Properties = amqp.NewConnectionProperties()
	cfg.Properties.SetClientConnectionName("cdc-relay/compare")
	if cfg.TLSClientConfig == nil && uri.Scheme == "amqps" {
		cfg.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	cfg.Dial = func(network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// until it is open; amqp091 takes it away
		return conn, conn.SetDeadline(time.Now().Add(20 * time.Second))
	}
	conn, err := amqp.DialConfig(url, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return conn, nil
}

func (s *rabbitSide) close() {
	_ = s.conn.CloseDeadline(time.Now().Add(2 * time.Second)) //nolint:errcheck // it may have ended already
}

func (s *rabbitSide) partitions() []int { return nil }

// read acknowledges what was taken. When the connection is lost the queue is, and with it what was
// in it.
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
	case reason := <-s.gone:
		if reason != nil {
			return fmt.Errorf("the connection is lost, and the queue with what was in it: %w", reason)
		}
	case <-time.After(time.Second):
	}
	return errors.New("the consumer was cancelled, and the queue is gone with what was in it")
}
