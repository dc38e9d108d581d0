// RabbitMQ next to the stand, and the relay's configuration for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// rabbitStand is a stand with RabbitMQ, and the way to it that is 2 ms longer.
type rabbitStand struct {
	*stand
	rabbit *rabbitserver.Rabbit
	far    *netproxy.Proxy // to the broker, 1 ms later in each direction
}

func openRabbit(ctx context.Context, s *stand) (_ bench, err error) {
	r := &rabbitStand{stand: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err = s.start(ctx); err != nil {
		return nil, err
	}
	if r.rabbit, err = rabbitserver.Start(ctx, rabbitserver.Options{}); err != nil {
		return nil, err
	}
	if err = r.askBrokerPid(ctx); err != nil {
		return nil, err
	}
	if r.far, err = netproxy.Start(r.rabbit.Addr()); err != nil {
		return nil, err
	}
	r.far.Delay(time.Millisecond)
	return r, s.firstSlot(ctx, r.config(runSpec{ordering: "key"}))
}

// close ends everything; what was never started is left out.
func (s *rabbitStand) close() error {
	var errs []error
	if s.far != nil {
		s.far.Close()
	}
	if s.rabbit != nil {
		errs = append(errs, s.rabbit.Close())
	}
	return errors.Join(append(errs, s.stand.close())...)
}

// askBrokerPid finds the broker's process.
func (s *rabbitStand) askBrokerPid(ctx context.Context) error {
	out, err := s.rabbit.Ctl(ctx, "eval", "os:getpid().")
	if err != nil {
		return err
	}
	if s.brokerPid, err = strconv.Atoi(strings.Trim(strings.TrimSpace(out), `"`)); err != nil {
		return fmt.Errorf("read pid of broker: %w", err)
	}
	return nil
}

// broker is the broker's name and version.
func (s *rabbitStand) broker(context.Context) (string, error) {
	conn, err := amqp.Dial(s.rabbit.URL())
	if err != nil {
		return "", fmt.Errorf("connect to broker: %w", err)
	}
	defer conn.Close()
	return fmt.Sprintf("RabbitMQ %v", conn.Properties["version"]), nil
}

// brokerURL is the broker's address, or that of the longer way.
func (s *rabbitStand) brokerURL(far bool) string {
	u, err := url.Parse(s.rabbit.URL())
	if err != nil || !far {
		return s.rabbit.URL()
	}
	u.Host = s.far.Addr()
	return u.String()
}

// config is the relay's configuration for a load.
func (s *rabbitStand) config(l runSpec) string { return s.configTo(exchange, l) }

// configTo is config for another exchange.
func (s *rabbitStand) configTo(exchange string, l runSpec) string {
	return s.source() + fmt.Sprintf("sink:\n  rabbitmq:\n    url: %s\n    exchange: %s\ndelivery:\n  ordering: %s\n", s.brokerURL(l.far), exchange, l.ordering)
}
