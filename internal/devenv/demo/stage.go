package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// stage is one performance: what happens when.
type stage struct {
	out     display
	stdout  io.Writer // for what comes below the display's last view
	colours paint
	length  length
	keep    bool // leave everything running after the verdict

	began time.Time
	cast  cast
	work  *devenv.Workload
	meter *meter
	probe *probe
	away  time.Duration // how long the broker took no connections

	endOrders, endSamples func() // return when the order service, the sampling of the slot have ended
	closing               sync.WaitGroup

	scene scene
}

const keys = 200

// play gives the whole performance, and ends everyone, however it goes. It returns nil when the verdict is good,
// errInterrupted when ctx ended before there was one.
func (s *stage) play(ctx context.Context) error {
	s.began, s.meter = time.Now(), newMeter()
	acting, fail := context.WithCancelCause(ctx)
	audience, leave := context.WithCancel(context.Background())
	var drawing sync.WaitGroup
	s.enter(starting, "Starting PostgreSQL and RabbitMQ, building cdc-relay.")
	drawing.Go(func() { s.draw(audience) })

	result, err := s.acts(acting, fail)
	if cause := context.Cause(acting); err != nil && cause != nil {
		err = cause // why the act was cut short, not where
	}
	if err != nil && ctx.Err() != nil {
		s.say("Interrupted: stopping everything.")
		err = errInterrupted
	}
	leave()
	drawing.Wait()
	s.out.close()
	if err == nil {
		err = s.conclude(ctx, result)
	}
	fail(nil)
	s.closing.Wait()
	return errors.Join(err, s.cast.close())
}

func (s *stage) acts(ctx context.Context, fail context.CancelCauseFunc) (*outcome, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	s.begin(ctx, fail)
	for _, act := range []func(context.Context) error{s.flow, s.outage, s.catchUp} {
		if err := act(ctx); err != nil {
			return nil, err
		}
	}
	return s.judge(ctx)
}

// open starts everyone.
func (s *stage) open(ctx context.Context) error {
	err := s.cast.startServers(ctx, func(who, what string) {
		s.setState(who, "up")
		s.say(what + ".")
	})
	if err != nil {
		return err
	}
	if err := s.cast.startConsumer(ctx); err != nil {
		return err
	}
	s.setState(consumerName, "reading")
	s.say(fmt.Sprintf("A consumer reads queue %q, bound to exchange %q.", queue, exchange))
	s.setState(relayName, "starting")
	s.tell("Starting cdc-relay: it makes its publication and its replication slot.")
	if err := s.cast.startRelay(ctx); err != nil {
		return err
	}
	s.say(fmt.Sprintf("cdc-relay (process %d) streams from slot %q.", s.cast.relay.Pid(), slot))
	return nil
}

// begin opens the order service, and starts those who watch. They end with ctx; closing waits for them.
func (s *stage) begin(ctx context.Context, fail context.CancelCauseFunc) {
	s.work = &devenv.Workload{
		URL: s.cast.db, Writers: 4, Keys: keys, RowsPerTx: 2, Rate: 600, Rollbacks: 0.05, SavepointRollbacks: 0.05,
		Payload: 200, Seed: 1, OnCommit: s.meter.commit,
	}
	s.endOrders = s.spawn(ctx, func(ctx context.Context) {
		if err := s.work.Run(ctx); err != nil {
			fail(err)
		}
	})
	s.endSamples = s.spawn(ctx, func(ctx context.Context) {
		err := devenv.FlushWatch{DB: s.cast.db, Slot: slot, Consumer: s.cast.consumer}.Run(ctx)
		if err != nil {
			fail(err)
		}
	})
	s.spawn(ctx, func(ctx context.Context) {
		if code, err := s.cast.relay.Exit(ctx); err == nil {
			fail(fmt.Errorf("cdc-relay ended with exit code %d; its last lines:\n%s", code, s.cast.lastLines()))
		}
	})
	s.probe = newProbe(&s.cast)
	s.spawn(ctx, s.probe.run)
	s.goLive()
}

// spawn starts do, and returns what ends it and waits for its end.
func (s *stage) spawn(ctx context.Context, do func(context.Context)) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	s.closing.Go(func() {
		defer close(done)
		defer cancel()
		do(ctx)
	})
	return func() {
		cancel()
		<-done
	}
}

func (s *stage) flow(ctx context.Context) error {
	s.enter(flowing, "Orders and their outbox rows are committed together, or roll back.")
	s.say("The order service is open: 300 transactions a second, some roll back.")
	return wait(ctx, s.length.flow)
}

func (s *stage) outage(ctx context.Context) error {
	s.enter(outage, "Stopping RabbitMQ: orders go on, events wait in PostgreSQL's WAL.")
	s.say("Stopping RabbitMQ.")
	stopped := time.Now()
	s.meter.goAway(stopped)
	if err := s.cast.rabbit.Stop(ctx); err != nil {
		return err
	}
	s.say("RabbitMQ is down. Nothing can be confirmed, so the slot stands still.")
	s.tell("RabbitMQ is down: orders go on, events wait in PostgreSQL's WAL.")
	if err := wait(ctx, s.length.down); err != nil {
		return err
	}
	s.say("Starting RabbitMQ again.")
	s.tell("Starting RabbitMQ again: it takes some seconds, and events still wait.")
	if err := s.cast.rabbit.Start(ctx); err != nil {
		return err
	}
	s.away = time.Since(stopped)
	s.say(fmt.Sprintf("RabbitMQ is back after %.1f s.", s.away.Seconds()))
	return nil
}

const catchUpWithin = 30 * time.Second

func (s *stage) catchUp(ctx context.Context) error {
	back := time.Now()
	s.enter(catchingUp, "RabbitMQ is back: what waited is sent, in order, then what is new.")
	for s.meter.waiting(back) > 0 {
		if time.Since(back) > catchUpWithin {
			break // the checker says what is missing
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	caughtUp := time.Now()
	s.meter.comeBack(caughtUp)
	if left := s.meter.waiting(back); left > 0 {
		s.say(fmt.Sprintf("%s events still wait, %.0f s later.", thousands(left), catchUpWithin.Seconds()))
		return nil
	}
	s.say(fmt.Sprintf("Caught up %s after RabbitMQ took connections again.", short(caughtUp.Sub(back))))
	s.tell("Caught up: events arrive as fast as before.")
	return wait(ctx, s.length.after)
}

const (
	arriveWithin = 20 * time.Second
	drainWithin  = 10 * time.Second
)

// judge closes the order service, waits until the queue is read to its end, and compares.
func (s *stage) judge(ctx context.Context) (*outcome, error) {
	s.enter(judging, "The orders have stopped: comparing the database with the queue.")
	s.say("The order service has closed. Reading the queue to its end.")
	s.endOrders()
	s.scene.set(func(sc *scene) { sc.ordersDone = true })
	rows, err := devenv.ReadCommitted(ctx, s.cast.db)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	// What has not come by then is lost, and the checker says so.
	bounded(ctx, arriveWithin, func(ctx context.Context) error { return s.cast.consumer.WaitIDs(ctx, ids) })
	s.endSamples()
	if err := bounded(ctx, drainWithin, s.cast.consumer.Drain); err != nil {
		return nil, err
	}
	history := devenv.History{
		Committed: rows, RolledBack: s.work.RolledBack(), Deliveries: s.cast.consumer.Deliveries(),
		Marks: s.cast.consumer.Marks(), MaxDuplicates: -1,
	}
	if err := wait(ctx, 2*probeEvery); err != nil { // the last view shows the same numbers
		return nil, err
	}
	s.enter(over, "Everything has been compared.")
	result := &outcome{
		Verdict: devenv.Check(history), keys: keys, rolledBack: len(history.RolledBack), samples: len(history.Marks), away: s.away,
	}
	result.up, result.outage = s.meter.total()
	return result, nil
}

// conclude prints the verdict, and leaves everything running if that is wished.
func (s *stage) conclude(ctx context.Context, result *outcome) error {
	for _, line := range result.lines(s.colours) {
		fmt.Fprintln(s.stdout, line)
	}
	err := result.Err()
	if err != nil {
		err = fmt.Errorf("the verdict is bad; the relay's last lines:\n%s", s.cast.lastLines())
	}
	if s.keep {
		s.keepOpen(ctx)
	}
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	if !every(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

func bounded(ctx context.Context, d time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return do(ctx)
}
