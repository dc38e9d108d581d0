package devenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// This file keeps one server of each kind per test process. Addresses given in CDC_RELAY_TEST_POSTGRES
// (postgres://user@host:port/), CDC_RELAY_TEST_RABBITMQ (amqp://user:password@host:port/) and CDC_RELAY_TEST_KAFKA
// (host:port,host:port) are used instead.

var (
	sharedPostgres = sync.OnceValues(func() (*Postgres, error) {
		if u, err := givenURL("CDC_RELAY_TEST_POSTGRES"); u != nil || err != nil {
			return &Postgres{url: u}, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		p, err := StartPostgres(ctx, PostgresOptions{})
		if err == nil {
			shared.add(p.Close)
		}
		return p, err
	})
	sharedRabbitMQ = sync.OnceValues(func() (*Rabbit, error) {
		if u, err := givenURL("CDC_RELAY_TEST_RABBITMQ"); u != nil || err != nil {
			return &Rabbit{url: u}, err
		}
		own, err := ownRabbitMQ()
		if err != nil {
			return nil, err
		}
		lent := *own
		lent.lent = true
		return &lent, nil
	})
	ownRabbitMQ = sync.OnceValues(func() (*Rabbit, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		r, err := StartRabbitMQ(ctx, RabbitOptions{})
		if err == nil {
			shared.add(r.Close)
		}
		return r, err
	})
	sharedKafka = sync.OnceValues(func() (*Kafka, error) {
		if given := os.Getenv("CDC_RELAY_TEST_KAFKA"); given != "" {
			return &Kafka{bootstrap: strings.Split(given, ",")}, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		k, err := StartKafka(ctx, KafkaOptions{})
		if err == nil {
			shared.add(k.Close)
		}
		return k, err
	})
	shared closers
)

// SharedPostgres is the server that all tests of the process use that neither stop nor reconfigure it. It is started at
// first use and ended by Main.
func SharedPostgres(t testing.TB) *Postgres {
	t.Helper()
	p, err := sharedPostgres()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// SharedRabbitMQ is the broker that all tests of the process use that neither stop nor reconfigure it: Stop, Kill and Ctl
// refuse, whether it was started here or its address was given. It is started at first use and ended by Main.
func SharedRabbitMQ(t testing.TB) *Rabbit {
	t.Helper()
	return broker(t, sharedRabbitMQ)
}

// OwnRabbitMQ is a broker of this process, also when an address is given: for tests that reconfigure it. They put back
// what they change and run beside no other test, because the tests on SharedRabbitMQ may use the same one. It is started
// at first use and ended by Main. A test that stops its broker starts one by StartRabbitMQ.
func OwnRabbitMQ(t testing.TB) *Rabbit {
	t.Helper()
	return broker(t, ownRabbitMQ)
}

func broker(t testing.TB, start func() (*Rabbit, error)) *Rabbit {
	t.Helper()
	r, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// SharedKafka is the cluster of one broker that all tests of the process use that neither stop nor reconfigure it. It is
// started at first use and ended by Main.
func SharedKafka(t testing.TB) *Kafka {
	t.Helper()
	k, err := sharedKafka()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Main is for TestMain: it runs the tests, ends the shared servers, checks that no goroutine is left, and exits.
func Main(m *testing.M) { goleak.VerifyTestMain(closing{m}) }

type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "end shared servers:", err)
		return 1
	}
	return code
}

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
