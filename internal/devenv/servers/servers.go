// All servers for a run, as `serve` starts them.

package servers

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// Servers are one of each kind, and a relay, for all tests of a run.
type Servers struct {
	postgres *pgserver.Postgres
	rabbit   *rabbitserver.Rabbit
	kafka    *kafkaserver.Kafka
	binary   string
}

// StartServers starts a PostgreSQL, a RabbitMQ and a Kafka side by side and, if it is asked to,
// builds the relay meanwhile. It skips what the environment names. When one fails the others are
// closed.
func StartServers(ctx context.Context, relay bool) (*Servers, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &Servers{}
	starts := map[string]func() error{
		"CDC_RELAY_TEST_POSTGRES": func() (err error) { s.postgres, err = startPostgresForTests(ctx, "on"); return err },
		"CDC_RELAY_TEST_RABBITMQ": func() (err error) { s.rabbit, err = startRabbitMQForTests(ctx); return err },
		"CDC_RELAY_TEST_KAFKA":    func() (err error) { s.kafka, err = startKafkaForTests(ctx); return err },
	}
	if relay {
		starts["CDC_RELAY_TEST_BINARY"] = func() (err error) { s.binary, err = runner.RelayBinary(ctx); return err }
	}
	var (
		first error // the others fail because of it
		mu    sync.Mutex
		all   sync.WaitGroup
	)
	for variable, start := range starts {
		if os.Getenv(variable) != "" {
			continue
		}
		all.Go(func() {
			if err := start(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
				cancel()
			}
		})
	}
	all.Wait()
	if first != nil {
		return nil, errors.Join(first, s.Close())
	}
	return s, nil
}

// Environ is what tests find the servers by: NAME=VALUE.
func (s *Servers) Environ() []string {
	var env []string
	if s.postgres != nil {
		env = append(env, "CDC_RELAY_TEST_POSTGRES="+s.postgres.URL(""))
	}
	if s.rabbit != nil {
		env = append(env, "CDC_RELAY_TEST_RABBITMQ="+s.rabbit.URL(), "CDC_RELAY_TEST_RABBITMQ_API="+s.rabbit.Api)
	}
	if s.kafka != nil {
		env = append(env, "CDC_RELAY_TEST_KAFKA="+strings.Join(s.kafka.Brokers(), ","), kafkaserver.WaysVariable+"="+strings.Join(s.kafka.Ways, ","))
	}
	if s.binary != "" {
		env = append(env, "CDC_RELAY_TEST_BINARY="+s.binary)
	}
	return env
}

// Close ends those that were started.
func (s *Servers) Close() error {
	var errs []error
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	if s.rabbit != nil {
		errs = append(errs, s.rabbit.Close())
	}
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	return errors.Join(errs...)
}
