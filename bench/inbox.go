// The other end: the inbox, beside consumers that have no database.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const (
	// inboxConcurrency is how many messages are in their handler at once.
	inboxConcurrency = 16
	// inboxPrefetch is how many messages a consumer has that are not acknowledged, with and without
	// an inbox. Only RabbitMQ counts them.
	inboxPrefetch = 4 * inboxConcurrency
)

// reception is a queue or topic of a run, and those who receive from it.
type reception struct {
	config  string // of the relay whose events it gets
	service string
	declare func(context.Context, *inbox.Inbox) (run func(context.Context) error, err error)
	fill    func(ctx context.Context, first int64, keys []string) error
	// bare receives so many messages and acknowledges each. got is called for each.
	bare   func(ctx context.Context, n int, got func()) error
	remove func() error
}

// notifications is a service whose handler writes a row for each event. It notes when the effects
// were committed.
type notifications struct {
	pool *pgxpool.Pool
	in   *inbox.Inbox

	mu        sync.Mutex
	writing   map[*pgx.Conn]checker.Delivery
	committed []checker.Delivery
}

// newNotifications makes the service's database, which is dropped at the end.
func (s *stand) newNotifications(ctx context.Context, service string) (_ *notifications, end func() error, err error) {
	const name = "notifications"
	if err := s.pg.CreateDatabase(ctx, name); err != nil {
		return nil, nil, err
	}
	n := &notifications{writing: map[*pgx.Conn]checker.Delivery{}}
	end = func() error {
		if n.pool != nil {
			n.pool.Close()
		}
		return s.pg.DropDatabase(context.WithoutCancel(ctx), name)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	if err = execSQL(ctx, s.pg.URL(name), inbox.Schema("")+"CREATE TABLE notifications (id bigserial PRIMARY KEY, customer text, text text)"); err != nil {
		return nil, nil, err
	}
	cfg, err := pgxpool.ParseConfig(s.pg.URL(name))
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns, cfg.ConnConfig.Tracer = inboxConcurrency, n
	if n.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, nil, err
	}
	n.in, err = inbox.New(inbox.Config{Service: service, Pool: n.pool, Handler: n.handle})
	return n, end, err
}

func (n *notifications) handle(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO notifications (customer, text) VALUES ($1, $2)", m.Key, string(m.Payload))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writing[tx.Conn()] = checker.Delivery{ID: m.ID, Key: m.Key}
	return err
}

type commits struct{}

// TraceQueryStart and TraceQueryEnd note the answers to COMMIT.
func (n *notifications) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if q.SQL == "commit" {
		return context.WithValue(ctx, commits{}, true)
	}
	return ctx
}

func (n *notifications) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryEndData) {
	if ctx.Value(commits{}) == nil || q.Err != nil {
		return
	}
	at := time.Now().UnixNano()
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.writing[conn]
	d.At = at
	n.committed = append(n.committed, d)
}

// wait returns when so many effects were committed, all of them.
func (n *notifications) wait(ctx context.Context, count int) ([]checker.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n.mu.Lock()
		have := n.committed
		n.mu.Unlock()
		if len(have) >= count {
			return have, nil
		}
		if err := waitUntil(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			return nil, fmt.Errorf("wait for %d effects, have %d: %w", count, len(have), err)
		}
	}
}

// during has the service receive while do runs.
func (s *stand) during(ctx context.Context, r *reception, do func(*notifications) error) (err error) {
	n, end, err := s.newNotifications(ctx, r.service)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	run, err := r.declare(ctx, n.in)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(running) }()
	err = do(n)
	stop()
	return errors.Join(err, <-ended)
}

// inboxRows measures both, each consumer and the inbox in turns.
func (s *stand) inboxRows(ctx context.Context, receive func(context.Context) (*reception, error), listen func(context.Context) (*listener, error)) ([]result, error) {
	live, err := s.inboxLive(ctx, receive, listen)
	if err != nil {
		return nil, err
	}
	drain, err := s.inboxDrain(ctx, receive)
	return []result{live, drain}, err
}

// inboxLive is the way from COMMIT to COMMIT, beside that from COMMIT to a consumer.
func (s *stand) inboxLive(ctx context.Context, receive func(context.Context) (*reception, error), listen func(context.Context) (*listener, error)) (result, error) {
	var p50 [2][]float64
	phase := func() *phase { return &phase{db: s.db, first: s.nextRun(), rate: liveRate, length: s.size.live} }
	base := func(ctx context.Context) (p99 float64, err error) {
		l, err := listen(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, l.end()) }()
		err = s.withRelay(l.config, func(relay *runner.Relay) error {
			if err := ready(ctx, relay); err != nil {
				return err
			}
			took, err := l.hear(ctx, phase())
			p50[0], p99 = append(p50[0], median(took)), quantile(took, 0.99)
			return err
		})
		return p99, err
	}
	ours := func(ctx context.Context) (p99 float64, err error) {
		r, err := receive(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.remove()) }()
		err = s.during(ctx, r, func(n *notifications) error {
			return s.withRelay(r.config, func(relay *runner.Relay) error {
				if err := ready(ctx, relay); err != nil {
					return err
				}
				p := phase()
				rows, err := p.run(ctx)
				if err != nil {
					return err
				}
				arrived, err := n.wait(ctx, rows)
				if err != nil {
					return err
				}
				took, err := p.latencies(arrived, rows)
				p50[1], p99 = append(p50[1], median(took)), quantile(took, 0.99)
				return err
			})
		})
		return p99, err
	}
	turns, err := s.turns(ctx, s.size.inboxes, base, ours, milliseconds)
	if err != nil {
		return result{}, err
	}
	r := turns.result(fmt.Sprintf("live %s/s: p99 from COMMIT of the event to COMMIT of its effect ÷ p99 to a consumer without a database", thousands(liveRate)), "×", milliseconds)
	r.note = fmt.Sprintf("p50 %s, without a database %s", milliseconds(median(p50[1])), milliseconds(median(p50[0])))
	return r, nil
}

// inboxDrain is how fast a queue becomes empty.
func (s *stand) inboxDrain(ctx context.Context, receive func(context.Context) (*reception, error)) (result, error) {
	keys := keyset{count: 1000}.draw(s.size.received)
	var spent [2]time.Duration
	var received [2]int // messages
	filled := func(ctx context.Context, side int, empty func(*reception) (time.Duration, error)) (rate float64, err error) {
		r, err := receive(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.remove()) }()
		if err := r.fill(ctx, s.nextRun(), keys); err != nil {
			return 0, err
		}
		before, err := cpuTime(os.Getpid())
		if err != nil {
			return 0, err
		}
		took, err := empty(r)
		if err != nil {
			return 0, err
		}
		after, err := cpuTime(os.Getpid())
		spent[side] += after - before
		received[side] += len(keys)
		return float64(len(keys)) / took.Seconds(), err
	}
	base := func(ctx context.Context) (float64, error) {
		return filled(ctx, 0, func(r *reception) (time.Duration, error) {
			var first, last time.Time
			err := r.bare(ctx, len(keys), func() {
				if last = time.Now(); first.IsZero() {
					first = last
				}
			})
			return last.Sub(first), err
		})
	}
	ours := func(ctx context.Context) (float64, error) {
		return filled(ctx, 1, func(r *reception) (took time.Duration, err error) {
			err = s.during(ctx, r, func(n *notifications) error {
				arrived, err := n.wait(ctx, len(keys))
				if err == nil {
					took = time.Duration(arrived[len(keys)-1].At - arrived[0].At)
				}
				return err
			})
			return took, err
		})
	}
	turns, err := s.turns(ctx, s.size.inboxes, base, ours, perSecond)
	if err != nil {
		return result{}, err
	}
	r := turns.result(fmt.Sprintf("%s messages that wait, 1,000 keys: inbox ÷ a consumer that only acknowledges", thousands(len(keys))), "×", perSecond)
	r.note = fmt.Sprintf("consumer's process %s, without a database %s µs CPU per message", micros(spent[1]/time.Duration(received[1])), micros(spent[0]/time.Duration(received[0])))
	return r, nil
}
