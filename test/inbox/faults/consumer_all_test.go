//go:build testall

// The consumer: what a process of a service is, and the points where it stops.

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
	inboxkafka "github.com/cdc-relay/cdc-relay/inbox/kafka"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
)

// The points of a message's way. Each has a service of its own.
const (
	before    = "before the handler"
	within    = "in the handler"
	committed = "after COMMIT"
	retrying  = "in the retry publish"
	dying     = "in the DLQ publish"
)

var points = []string{before, within, committed, retrying, dying}

// The types of messages: one of a service stops at the point, one is retried before it.
const (
	target = "target"
	warm   = "warm"
	plain  = "plain"
)

const jobVariable = "CDC_RELAY_TEST_CONSUMER"

// job is what a process is told to do.
type job struct {
	Service, Point string
	Database       string
	RabbitMQ       string   // address; "": on Kafka
	Kafka          []string // addresses
	Topic          string   // on Kafka
	Passing        bool     // it does not stop at the point
}

// stops is a consumer that stops at its point until it is told to go on.
type stops struct {
	job
	once   sync.Once
	goOn   chan struct{}
	commit atomic.Pointer[pgx.Conn] // after whose COMMIT it stops
}

// consume is the process. It says "reached" when it stops, goes on after a line, and ends in order
// at SIGTERM.
func consume(text string) int {
	s := &stops{goOn: make(chan struct{})}
	if err := json.Unmarshal([]byte(text), &s.job); err != nil {
		panic(err)
	}
	if s.Passing {
		close(s.goOn)
	} else {
		go func() {
			bufio.NewScanner(os.Stdin).Scan()
			close(s.goOn)
		}()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "the consumer ends:", err)
		return 1
	}
	return 0
}

func (s *stops) run(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(s.Database)
	if err != nil {
		return err
	}
	cfg.ConnConfig.Tracer, cfg.MaxConns = s, 4
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	in, err := inbox.New(inbox.Config{
		Service: s.Service, Pool: pool, Handler: s.handle, Levels: levels, Timeout: 5 * time.Minute,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	if s.RabbitMQ == "" {
		c, err := inboxkafka.New(in, inboxkafka.Config{Brokers: s.Kafka, Topics: []string{s.Topic}, SessionTimeout: sessionTimeout})
		if err != nil {
			return err
		}
		return c.Run(ctx)
	}
	c, err := rabbit.New(in, rabbit.Config{URL: s.RabbitMQ, Bindings: bindings(s.Service), Prefetch: 100})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func bindings(service string) []rabbit.Binding {
	return []rabbit.Binding{{Exchange: exchange, Key: service + ".*"}}
}

// levels has one pause: there are two attempts.
var levels = []time.Duration{time.Second}

// sessionTimeout is how long Kafka takes a killed process for alive.
const sessionTimeout = 3 * time.Second

var errMailer = errors.New("the mailer is away")

// handle has the effect of a message: a row.
func (s *stops) handle(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	point := ""
	switch {
	case m.Type == target:
		point = s.Point
	case m.Type == warm && m.Attempt == 1:
		return errMailer
	}
	if point == before {
		s.reach(ctx)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO effects (service, id) VALUES ($1, $2)", s.Service, m.ID); err != nil {
		return err
	}
	switch point {
	case within:
		s.reach(ctx)
	case committed:
		s.commit.Store(tx.Conn())
	case retrying:
		if m.Attempt == 1 {
			s.reach(ctx) // the publish follows
			return errMailer
		}
	case dying:
		s.reach(ctx)
		return fmt.Errorf("no such customer: %w", inbox.ErrPermanent)
	}
	return nil
}

// reach stops at the point, until the test lets go or the consumer has to end.
func (s *stops) reach(ctx context.Context) {
	s.once.Do(func() { fmt.Println("reached") })
	select {
	case <-s.goOn:
	case <-ctx.Done():
	}
}

// commits marks the context of a COMMIT.
type commits struct{}

// TraceQueryStart and TraceQueryEnd make the stops a pgx.QueryTracer, which stops between COMMIT
// and the acknowledgement.
func (s *stops) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if q.SQL == "commit" && s.commit.CompareAndSwap(conn, nil) {
		return context.WithValue(ctx, commits{}, true)
	}
	return ctx
}

func (s *stops) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if ctx.Value(commits{}) != nil && q.Err == nil {
		s.reach(ctx)
	}
}
