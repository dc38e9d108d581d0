// The story of the pictures: servers, a relay, load, and what goes wrong.

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// length has the durations of the story's parts.
type length struct {
	flow    time.Duration // before, between and after the faults
	poison  time.Duration // from the poison to the outage
	watched time.Duration // from the beginning of the outage to the picture of the screen
	down    time.Duration // of the broker, at least watched
	mistake time.Duration // until it is undone
}

var fullLength = length{flow: 40 * time.Second, poison: 30 * time.Second, watched: 30 * time.Second, down: 90 * time.Second, mistake: 30 * time.Second}

const (
	database = "shop"
	exchange = "outbox.events"
	queue    = "orders"
	limit    = 64 << 10 // max_message_size of the broker
)

// event is what happened, for the marks in the pictures. from and to are the same for a moment.
type event struct {
	name     string
	from, to time.Time
}

// story is one run. After run it has what the pictures need.
type story struct {
	*console.Console
	length length

	postgres   *pgserver.Postgres
	rabbit     *rabbitserver.Rabbit
	reader     *consumers.Consumer
	relay      *runner.Relay
	prometheus *servers.Prometheus
	binary, db string
	work       *load.Workload
	stopLoad   func() error

	began, ended time.Time
	events       []event
	watched      string // the last frame of status --watch
}

func (s *story) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.start, s.flow, s.poison, s.outage, s.caughtUp, s.flow, s.mistake, s.caughtUp, s.flow} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.ended = time.Now()
	return nil
}

// start starts the servers, the relay, what watches it, and the load.
func (s *story) start(ctx context.Context) (err error) {
	s.Say("Starting PostgreSQL, RabbitMQ, Prometheus and a build of cdc-relay.")
	if s.postgres, err = pgserver.Start(ctx, pgserver.Options{Settings: map[string]string{"max_slot_wal_keep_size": "128MB"}}); err != nil {
		return err
	}
	s.db = s.postgres.URL(database)
	if err := errors.Join(s.postgres.CreateDatabase(ctx, database), load.CreateOutbox(ctx, s.db)); err != nil {
		return err
	}
	if s.rabbit, err = rabbitserver.Start(ctx, rabbitserver.Options{Config: map[string]string{"max_message_size": fmt.Sprint(limit)}}); err != nil {
		return err
	}
	if s.reader, err = consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: s.rabbit.URL(), Exchange: exchange, Queue: queue}); err != nil {
		return err
	}
	if s.binary, err = runner.RelayBinary(ctx); err != nil {
		return err
	}
	if s.relay, err = runner.LaunchRelay(s.binary, s.config()); err != nil {
		return err
	}
	if err := s.relay.WaitReady(ctx); err != nil {
		return err
	}
	jobs := map[string][]string{database: {s.relay.Admin()}}
	if s.prometheus, err = servers.StartPrometheus(ctx, servers.PrometheusOptions{Interval: scrape, Jobs: jobs}); err != nil {
		return err
	}
	s.work = &load.Workload{URL: s.db, Writers: 4, Keys: 200, RowsPerTx: 2, Rate: 200, Rollbacks: 0.05, Payload: 1000, Seed: 1}
	loading, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.work.Run(loading) }()
	s.stopLoad = func() error { cancel(); return <-ended }
	// a rate needs two scrapes
	if err := pause(ctx, 3*scrape); err != nil {
		return err
	}
	s.began = time.Now()
	return nil
}

func (s *story) config() string {
	return fmt.Sprintf("source: {url: %q}\nsink: {rabbitmq: {url: %q, exchange: %s}}\n", s.db, s.rabbit.URL(), exchange)
}

func (s *story) flow(ctx context.Context) error {
	s.Say("Events flow.")
	return pause(ctx, s.length.flow)
}

// poison is an event too large for the broker.
func (s *story) poison(ctx context.Context) error {
	s.Say("A poison event. The screen is watched from now on.")
	now := time.Now()
	s.events = append(s.events, event{"poison event", now, now})
	err := pgserver.OnConn(ctx, s.db, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), 'order', 'poison', 'placed', jsonb_build_object('fill', repeat('x', $1)))`, 2*limit)
		return err
	})
	if err != nil {
		return fmt.Errorf("write poison event: %w", err)
	}
	return nil
}

// outage takes the broker away.
func (s *story) outage(ctx context.Context) error {
	watch, err := startWatch(ctx, s.binary, s.relay)
	if err != nil {
		return err
	}
	defer watch.close()
	if err := pause(ctx, s.length.poison); err != nil {
		return err
	}
	s.Say("RabbitMQ is stopped.")
	away := time.Now()
	if err := s.rabbit.Stop(ctx); err != nil {
		return err
	}
	if err := pause(ctx, s.length.watched); err != nil {
		return err
	}
	if s.watched, err = watch.frame(); err != nil {
		return err
	}
	if err := pause(ctx, s.length.down-s.length.watched); err != nil {
		return err
	}
	if err := s.rabbit.Start(ctx); err != nil {
		return err
	}
	s.Say("RabbitMQ is back.")
	s.events = append(s.events, event{"broker away", away, time.Now()})
	return nil
}

// caughtUp waits until what is committed by now has arrived, but for the poison.
func (s *story) caughtUp(ctx context.Context) error {
	committed, last, moved := int(s.work.Committed()), 0, time.Now()
	for {
		arrived, _ := s.reader.Count()
		switch {
		case arrived >= committed:
			s.Say("Caught up.")
			return nil
		case arrived != last:
			last, moved = arrived, time.Now()
		case time.Since(moved) > patience:
			return fmt.Errorf("%d of %d events have arrived; the relay: %s", arrived, committed, processes.Tail(s.relay.Log()))
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// patience is how long nothing may move.
const patience = 2 * time.Minute

// mistake deletes the exchange, and makes it again.
func (s *story) mistake(ctx context.Context) error {
	s.Say("The exchange is deleted.")
	from := time.Now()
	if err := s.rabbit.OnChannel(func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) }); err != nil {
		return err
	}
	if err := pause(ctx, s.length.mistake); err != nil {
		return err
	}
	err := s.rabbit.OnChannel(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(queue, "#", exchange, false, nil)
	})
	if err != nil {
		return err
	}
	s.Say("The exchange is there again: deferred retry --all.")
	s.events = append(s.events, event{"exchange missing", from, time.Now()})
	result, err := runner.RunCommand(ctx, s.binary, s.config(), "deferred", "retry", "--all", "--wait", "1m")
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("deferred retry: exit code %d: %s%s", result.Code, result.Stdout, result.Stderr)
	}
	return err
}

// close ends everything that was started.
func (s *story) close() error {
	var errs []error
	if s.stopLoad != nil {
		errs = append(errs, s.stopLoad())
	}
	if s.relay != nil {
		errs = append(errs, s.relay.End())
	}
	if s.reader != nil {
		s.reader.Close()
	}
	if s.prometheus != nil {
		errs = append(errs, s.prometheus.Close())
	}
	if s.rabbit != nil {
		errs = append(errs, s.rabbit.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	return errors.Join(errs...)
}

// pause lets the story go on for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
