// Package fault runs the real relay between a real PostgreSQL and a real RabbitMQ, breaks something, and asks the checker:
// nothing lost, order kept, duplicates within the bound.
package fault

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

func TestMain(m *testing.M) { devenv.Main(m) }

// stand is one database and one virtual host, each behind a proxy, and what is needed to run relays between them.
type stand struct {
	t        *testing.T
	binary   string
	db       string // URL without the proxy
	postgres *devenv.Proxy
	broker   *devenv.Proxy
	consumer *devenv.Consumer
	slot     string
	extra    string // more configuration
	work     *devenv.Workload
}

func newStand(t *testing.T) *stand {
	t.Helper()
	pg, rmq := devenv.SharedPostgres(t), devenv.SharedRabbitMQ(t)
	return standOn(t, pg.Database(t), pg.Addr(), rmq.VHost(t), rmq.Addr())
}

func standOn(t *testing.T, db, pgAddr, vhost, brokerAddr string) *stand {
	t.Helper()
	ctx := within(t, time.Minute)
	s := &stand{t: t, binary: devenv.BuildRelay(t), db: db, slot: fmt.Sprintf("fault_%d", time.Now().UnixNano())}
	s.postgres, s.broker = proxy(t, pgAddr), proxy(t, brokerAddr)
	if err := devenv.CreateOutbox(ctx, db); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.consumer, err = devenv.StartConsumer(ctx, devenv.ConsumerOptions{URL: vhost}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.consumer.Close)
	s.work = &devenv.Workload{URL: db, Writers: 4, Keys: 20, RowsPerTx: 3, Rollbacks: 0.1, SavepointRollbacks: 0.05, Seed: 1}
	s.extra = "  rabbitmq: {url: '" + strings.Replace(vhost, brokerAddr, s.broker.Addr(), 1) + "'}\n"
	return s
}

func proxy(t *testing.T, target string) *devenv.Proxy {
	t.Helper()
	p, err := devenv.StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// config is the relay's configuration through both proxies.
func (s *stand) config() string {
	url := s.db
	return fmt.Sprintf(`source:
  url: %s
  slot: %s
  publication: %s
  wal_sender_timeout: 4s
sink:
%s`, s.proxied(url), s.slot, s.slot, s.extra)
}

func (s *stand) proxied(url string) string {
	at := strings.Index(url, "@")
	if at < 0 {
		at = strings.Index(url, "//") + 1
	}
	slash := strings.Index(url[at:], "/") + at
	return url[:at+1] + s.postgres.Addr() + url[slash:]
}

func (s *stand) start() *devenv.Relay {
	s.t.Helper()
	r := devenv.StartRelay(s.t, s.binary, s.config())
	s.must(r.WaitReady(within(s.t, 30*time.Second)))
	return r
}

func (s *stand) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// write commits at least n rows and returns when they are committed.
func (s *stand) write(n int64) {
	s.t.Helper()
	s.must(s.burst(n).Run(within(s.t, time.Minute)))
}

// burst is the workload with another number of events; numbers of keys go on where they were.
func (s *stand) burst(n int64) *devenv.Workload {
	s.work.Events += n
	return s.work
}

// check waits until the queue has what the database has, and asks the checker. maxDuplicates -1 is any number.
func (s *stand) check(maxDuplicates int) devenv.Verdict {
	s.t.Helper()
	rows, err := devenv.ReadCommitted(within(s.t, time.Minute), s.db)
	s.must(err)
	if len(rows) == 0 {
		s.t.Fatal("nothing was committed: this test shows nothing")
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	waited := s.consumer.WaitIDs(within(s.t, time.Minute), ids)
	s.must(s.consumer.Drain(within(s.t, 30*time.Second)))
	v := devenv.Check(devenv.History{
		Committed: rows, RolledBack: s.work.RolledBack(), Deliveries: s.consumer.Deliveries(), Marks: s.consumer.Marks(), MaxDuplicates: maxDuplicates,
	})
	if err := v.Err(); err != nil {
		s.t.Error(err, waited)
	}
	s.t.Log(v)
	return v
}

// watchFlush samples the slot while the test runs, so that the checker sees a report that came before its delivery.
func (s *stand) watchFlush() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- devenv.FlushWatch{DB: s.db, Slot: s.slot, Consumer: s.consumer}.Run(ctx)
	}()
	s.t.Cleanup(func() {
		cancel()
		s.must(<-done)
	})
}
