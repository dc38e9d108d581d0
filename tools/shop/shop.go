// One run of the shop: its steps one after the other, and the verdict.

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
)

// shop is one run.
type shop struct {
	*console.Console
	programs
	length length
	keep   bool // leave everything running after the verdict

	customers  *customers
	closeShop  func() // returns when no customer orders any more
	endNumbers func()
	all        sync.WaitGroup
	poison     string // id of the order that was a dead letter
	again      int    // messages that came again although their effect was there
	rolledBack int    // messages that were in the handler when it was killed
	brokerAway time.Duration
	mailerAway time.Duration
}

// length has the durations of those parts of the shop that wait for nothing.
type length struct {
	flow   time.Duration // before the first fault, and between faults
	down   time.Duration // from the broker's end to its start
	mailer time.Duration // that the mailer is away
}

var fullLength = length{flow: 4 * time.Second, down: 2 * time.Second, mailer: 4 * time.Second}

var errInterrupted = errors.New("interrupted")

// run shows the whole shop, and always ends all programs. It returns nil when the verdict is good,
// and errInterrupted when ctx ended before there was a verdict.
func (s *shop) run(ctx context.Context) error {
	running, fail := context.WithCancelCause(ctx)
	found, err := s.steps(running, fail)
	if cause := context.Cause(running); err != nil && cause != nil {
		err = cause // why the step was cut short, not where
	}
	if err != nil && ctx.Err() != nil {
		s.Say("Interrupted: stopping everything.")
		err = errInterrupted
	}
	if err == nil {
		err = s.conclude(ctx, found)
	} else {
		s.Print() // behind the numbers
		if !errors.Is(err, errInterrupted) {
			s.Print(s.logs()...)
		}
	}
	fail(nil)
	s.all.Wait()
	return errors.Join(err, s.close())
}

func (s *shop) steps(ctx context.Context, fail context.CancelCauseFunc) (verdict, error) {
	for _, step := range []func(context.Context) error{
		s.start, func(ctx context.Context) error { return s.open(ctx, fail) },
		s.killInHandler, s.loseAcknowledgements, s.restartBroker, s.poisonOrder, s.mailerOutage, s.replayDeadLetter,
	} {
		if err := step(ctx); err != nil {
			return verdict{}, err
		}
	}
	return s.judge(ctx)
}

// start starts all programs.
func (s *shop) start(ctx context.Context) error {
	s.Say("Starting PostgreSQL and %s; building cdc-relay, order-service and notification-service.", s.broker.name())
	if err := s.startServers(ctx, s.Say); err != nil {
		return err
	}
	if err := s.startServices(ctx); err != nil {
		return err
	}
	s.Say("order-service (process %d) answers on %s, with database %q.", s.orders.pid(), s.orders.url(), ordersDatabase)
	s.Say("notification-service (process %d) reads %s, with database %q.", s.notifications.pid(), s.broker.place(), notificationsDatabase)
	s.Say("cdc-relay (process %d) is between them.", s.relay.Pid())
	return nil
}

// open lets the customers in, and shows numbers. All ends with ctx.
func (s *shop) open(ctx context.Context, fail context.CancelCauseFunc) error {
	s.customers = newCustomers(s.orders.url())
	s.closeShop = s.spawn(ctx, func(ctx context.Context) {
		if err := s.customers.run(ctx); err != nil {
			fail(err)
		}
	})
	s.endNumbers = s.spawn(ctx, s.showNumbers)
	s.Say("%d customers order, %d orders a second. One request in ten is sent twice, as after a timeout.", customerCount, ordersPerSecond)
	return s.flow(ctx)
}

// spawn starts do in a goroutine. It returns a function that ends do and waits for its end.
func (s *shop) spawn(ctx context.Context, do func(context.Context)) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	s.all.Go(func() {
		defer close(done)
		defer cancel()
		do(ctx)
	})
	return func() {
		cancel()
		<-done
	}
}
