// Package servers gives tests one server of each kind: the one that `serve` started for the whole
// run, or one of the package's own.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// The servers of a process: those which `serve` has started for the whole run,
// or others whose addresses are given by CDC_RELAY_TEST_POSTGRES (postgres://user@host:port/),
// CDC_RELAY_TEST_RABBITMQ (amqp://user:password@host:port/) and CDC_RELAY_TEST_KAFKA
// (host:port,host:port). Without an address the process starts a server at first use.

var (
	sharedPostgres = sync.OnceValues(func() (*pgserver.Postgres, error) {
		if u, err := givenURL("CDC_RELAY_TEST_POSTGRES"); u != nil || err != nil {
			return &pgserver.Postgres{Url: u}, err
		}
		return closedInTheEnd(startPostgresForTests(context.Background(), "on"))
	})
	sharedRabbitMQ = sync.OnceValues(func() (*rabbitserver.Rabbit, error) {
		if u, err := givenURL("CDC_RELAY_TEST_RABBITMQ"); u != nil {
			return &rabbitserver.Rabbit{Url: u, Api: rabbitserver.GivenAPI(u)}, err
		} else if err != nil {
			return nil, err
		}
		own, err := ownRabbitMQ()
		if err != nil {
			return nil, err
		}
		lent := *own
		lent.Lent = true
		return &lent, nil
	})
	ownRabbitMQ = sync.OnceValues(func() (*rabbitserver.Rabbit, error) {
		return closedInTheEnd(startRabbitMQForTests(context.Background()))
	})
	sharedKafka = sync.OnceValues(func() (*kafkaserver.Kafka, error) {
		if given := os.Getenv("CDC_RELAY_TEST_KAFKA"); given != "" {
			return &kafkaserver.Kafka{Bootstrap: strings.Split(given, ",")}, nil
		}
		return closedInTheEnd(startKafkaForTests(context.Background()))
	})
	shared closers
)

// startPostgresForTests starts a server for many tests at a time. A crash of the machine is no
// subject of theirs.
func startPostgresForTests(ctx context.Context, autovacuum string) (*pgserver.Postgres, error) {
	return pgserver.Start(ctx, pgserver.Options{NoFsync: true, Settings: map[string]string{
		"max_connections": "1000", "max_replication_slots": "200", "max_wal_senders": "200", "autovacuum": autovacuum,
	}})
}

func startRabbitMQForTests(ctx context.Context) (*rabbitserver.Rabbit, error) {
	return rabbitserver.Start(ctx, rabbitserver.Options{Management: true})
}

func startKafkaForTests(ctx context.Context) (*kafkaserver.Kafka, error) {
	// Nobody takes its place: however long it stands still on a busy machine, it stays the leader.
	k, err := kafkaserver.Start(ctx, kafkaserver.Options{Proxied: kafkaserver.SharedWays, Settings: map[string]string{"broker.session.timeout.ms": "600000"}})
	if err == nil {
		k.LendWays()
	}
	return k, err
}

// closedInTheEnd has Main close a server.
func closedInTheEnd[S interface{ Close() error }](server S, err error) (S, error) {
	if err == nil {
		shared.add(server.Close)
	}
	return server, err
}

// SharedPostgres is the server that all tests use that neither stop nor reconfigure it, hold
// transactions open for long, write much WAL or read what belongs to the whole server: a new
// slot waits for all transactions of its server.
func SharedPostgres(t testing.TB) *pgserver.Postgres {
	t.Helper()
	return server(t, sharedPostgres)
}

// SharedRabbitMQ is the broker that all tests use that neither stop nor reconfigure it: Stop, Kill
// and Ctl refuse, whether it was started here or its address was given.
func SharedRabbitMQ(t testing.TB) *rabbitserver.Rabbit {
	t.Helper()
	return server(t, sharedRabbitMQ)
}

// OwnRabbitMQ is a broker of this process, also when an address is given: for tests that
// reconfigure it. They undo what they change, and no other test runs meanwhile: those on
// SharedRabbitMQ may use the same broker. It is started at first use and ended by Main. A test that
// stops its broker starts one by StartRabbitMQ.
func OwnRabbitMQ(t testing.TB) *rabbitserver.Rabbit {
	t.Helper()
	return server(t, ownRabbitMQ)
}

// SharedKafka is the cluster of one broker that all tests use that neither stop nor reconfigure it.
func SharedKafka(t testing.TB) *kafkaserver.Kafka {
	t.Helper()
	return server(t, sharedKafka)
}

func server[S any](t testing.TB, start func() (S, error)) S {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Main is for TestMain: it runs the tests, ends the servers of this process, checks that no
// goroutine is left, and exits. The examples of a package have no testing.T: what they need is
// prepared before (ExampleDatabase).
func Main(m *testing.M, examples ...Example) { goleak.VerifyTestMain(closing{m.Run, examples}) }

// Beside is Main for a program that runs tests of another module.
func Beside(run func() int, examples ...Example) (code int) { return closing{run, examples}.Run() }

type closing struct {
	run      func() int
	examples []Example
}

func (c closing) Run() int {
	code, err := prepared(c.examples, c.run)
	if err := errors.Join(err, shared.close()); err != nil {
		fmt.Fprintln(os.Stderr, "prepare or end shared servers:", err)
		return 1
	}
	return code
}

// AtEnd has Main call a function when all tests of the process are over: it closes a server that
// several of them use.
func AtEnd(close func() error) { shared.add(close) }

// closers is what is to be closed when all tests are over.
type closers struct {
	mu  sync.Mutex
	all []func() error
}

func (c *closers) add(close func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, close)
}

func (c *closers) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, close := range c.all {
		errs = append(errs, close())
	}
	c.all = nil
	return errors.Join(errs...)
}

func givenURL(variable string) (*url.URL, error) {
	text := os.Getenv(variable)
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("read %s: %q is not an address like scheme://user:password@host:port/", variable, text)
	}
	return u, nil
}
