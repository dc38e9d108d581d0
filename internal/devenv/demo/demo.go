// One run of the demo: its steps one after the other, and the verdict.

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// demo is one run.
type demo struct {
	*console.Console
	programs
	length length
	keep   bool // leave everything running after the verdict

	work *load.Workload
	// return when the order service, the sampling of the slot, the numbers have ended
	endOrders, endMarks, endNumbers func()
	all                             sync.WaitGroup
	meter                           *meter
	numbers                         *numbers
	found                           outcome
}

// length has the durations of those parts of the demo that wait for nothing.
type length struct {
	flow    time.Duration // before the poison
	poison  time.Duration // from the poison to the outage
	down    time.Duration // from the broker's end to its start
	mistake time.Duration // until it is undone
	after   time.Duration // after everything has been caught up, each time
}

var fullLength = length{
	flow: 8 * time.Second, poison: 4 * time.Second, down: 4 * time.Second, mistake: 6 * time.Second, after: 4 * time.Second,
}

var errInterrupted = errors.New("interrupted")

// run runs the whole demo, and always ends all programs. It returns nil when the verdict is good,
// and errInterrupted when ctx ended before there was a verdict.
func (d *demo) run(ctx context.Context) error {
	d.meter = newMeter()
	running, fail := context.WithCancelCause(ctx)
	err := d.steps(running, fail)
	if cause := context.Cause(running); err != nil && cause != nil {
		err = cause // why the step was cut short, not where
	}
	if err != nil && ctx.Err() != nil {
		d.Say("Interrupted: stopping everything.")
		err = errInterrupted
	}
	if err == nil {
		err = d.conclude(ctx)
	} else {
		d.Print() // behind the numbers
	}
	fail(nil)
	d.all.Wait()
	return errors.Join(err, d.close())
}

func (d *demo) steps(ctx context.Context, fail context.CancelCauseFunc) error {
	for _, step := range []func(context.Context) error{
		d.start, func(ctx context.Context) error { return d.beginOrders(ctx, fail) },
		d.poison, d.outage, d.catchUp, d.replay, d.mistake, d.afterMistake, d.judge,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// afterMistake is the worst day, if it is wished.
func (d *demo) afterMistake(ctx context.Context) error {
	if !d.worst {
		return nil
	}
	if err := d.fillDisk(ctx); err != nil {
		return err
	}
	if err := d.promotion(ctx); err != nil {
		return err
	}
	return d.worstDay(ctx)
}

// start starts all programs.
func (d *demo) start(ctx context.Context) error {
	d.Say("Starting PostgreSQL, %s and a build of cdc-relay.", d.broker.words().name)
	if err := d.startServers(ctx, d.Say); err != nil {
		return err
	}
	// The consumer comes before the relay: an event that no queue or topic takes is refused, as it
	// should be, and deferred.
	reads, err := d.broker.openConsumer(ctx)
	if err != nil {
		return err
	}
	d.Say("%s", reads)
	if err := d.startRelay(ctx); err != nil {
		return err
	}
	d.Say("cdc-relay (process %d) has made its publication and its slot %q, and streams.", d.relay.Pid(), slot)
	return nil
}

const keys = 200 // of the orders

// beginOrders opens the order service, and starts what watches it. All ends with ctx.
func (d *demo) beginOrders(ctx context.Context, fail context.CancelCauseFunc) error {
	d.work = &load.Workload{
		URL: d.db, Writers: 4, Keys: keys, RowsPerTx: 2, Rate: 400, Rollbacks: 0.05, SavepointRollbacks: 0.05,
		Payload: 200, Seed: 1, OnCommit: d.meter.commit,
	}
	d.endOrders = d.spawn(ctx, func(ctx context.Context) {
		if err := d.work.Run(ctx); err != nil {
			fail(err)
		}
	})
	d.endMarks = d.spawn(ctx, func(ctx context.Context) {
		if err := d.broker.watch(d.db).Run(ctx); err != nil {
			fail(err)
		}
	})
	d.spawn(ctx, func(ctx context.Context) {
		if code, err := d.relay.Exit(ctx); err == nil {
			fail(fmt.Errorf("cdc-relay ended with exit code %d (-1: by a signal); its last lines:\n%s", code, d.lastLines()))
		}
	})
	d.numbers = &numbers{db: d.db, relay: d.relay, consumer: d.broker.consumer(), meter: d.meter, show: d.Show}
	d.endNumbers = d.spawn(ctx, d.numbers.run)
	d.Say("The order service is open: 200 transactions a second, some roll back. Orders and their outbox rows are committed together.")
	return wait(ctx, d.length.flow)
}

// spawn starts do in a goroutine. It returns a function that ends do and waits for its end.
func (d *demo) spawn(ctx context.Context, do func(context.Context)) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	d.all.Go(func() {
		defer close(done)
		defer cancel()
		do(ctx)
	})
	return func() {
		cancel()
		<-done
	}
}

// judge closes the order service, waits until everything is read, and compares.
func (d *demo) judge(ctx context.Context) error {
	words, consumer := d.broker.words(), d.broker.consumer()
	d.Say("The order service has closed. Reading the %s to its end.", words.place)
	d.endOrders()
	rows, err := load.ReadCommitted(ctx, d.db)
	if err != nil {
		return err
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	if err := d.awaitIDs(ctx, ids...); err != nil && ctx.Err() != nil {
		return err
	} // What has not come by now is lost: the checker says so.
	d.endMarks()
	draining, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := consumer.Drain(draining); err != nil {
		return err
	}
	d.endNumbers()
	d.numbers.takeArrivals()
	history := checker.History{
		Committed: rows, RolledBack: d.work.RolledBack(), Deliveries: consumer.Deliveries(), Marks: consumer.Marks(), MaxDuplicates: -1,
		NewPositions: d.worst,
	}
	if words.once && !d.worst {
		history.MaxDuplicates = 0
	}
	if history.RetryTable, err = checker.ReadRetryTable(ctx, d.db, slot); err != nil {
		return err
	}
	if history.Stays, err = checker.ReadStays(ctx, d.db, slot); err != nil {
		return err
	}
	d.found.Verdict, d.found.words, d.found.keys, d.found.worst = checker.Check(history), words, keys+1, d.worst
	d.found.rolledBack, d.found.samples = len(history.RolledBack), len(history.Marks)
	d.found.up, d.found.outages = d.meter.total()
	return nil
}

// conclude prints the verdict, and leaves everything running if that is wished.
func (d *demo) conclude(ctx context.Context) error {
	d.Print(d.found.lines(d.Console)...)
	var err error
	if d.found.Err() != nil {
		err = fmt.Errorf("the verdict is bad; the relay's last lines:\n%s", d.lastLines())
	}
	if d.keep {
		d.keepOpen(ctx)
	}
	return err
}
