// The script of the demo: what happens when.

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/display"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// open starts everyone.
func (s *stage) open(ctx context.Context) error {
	err := s.cast.startServers(ctx, func(who, what string) {
		s.Say(what + ".")
		s.ready(who)
	})
	if err != nil {
		return err
	}
	// The consumer comes before the relay: an event that no queue or topic takes is refused, as it
	// should be, and deferred.
	reads, err := s.cast.broker.openConsumer(ctx)
	if err != nil {
		return err
	}
	s.setState(display.ConsumerName, "reads")
	s.Say(reads)
	s.setState(display.RelayName, "starting")
	s.tell("Starting cdc-relay: it makes its publication and its replication slot.")
	if err := s.cast.startRelay(ctx); err != nil {
		return err
	}
	s.Say(fmt.Sprintf("cdc-relay (process %d) streams from slot %q.", s.cast.relay.Pid(), slot))
	return nil
}

const keys = 200 // of the orders

// begin opens the order service, and starts those who watch. They end with ctx; closing waits for
// them.
func (s *stage) begin(ctx context.Context, fail context.CancelCauseFunc) {
	s.work = &load.Workload{
		URL: s.cast.db, Writers: 4, Keys: keys, RowsPerTx: 2, Rate: 400, Rollbacks: 0.05, SavepointRollbacks: 0.05,
		Payload: 200, Seed: 1, OnCommit: s.meter.Commit,
	}
	s.endOrders = s.spawn(ctx, func(ctx context.Context) {
		if err := s.work.Run(ctx); err != nil {
			fail(err)
		}
	})
	s.endSamples = s.spawn(ctx, func(ctx context.Context) {
		if err := s.cast.broker.watch(s.cast.db).Run(ctx); err != nil {
			fail(err)
		}
	})
	s.spawn(ctx, func(ctx context.Context) {
		if code, err := s.cast.relay.Exit(ctx); err == nil {
			fail(fmt.Errorf("%s; its last lines:\n%s", ending(code), s.cast.lastLines()))
		}
	})
	s.probe = newProbe(&s.cast)
	s.spawn(ctx, s.probe.run)
	s.goLive()
}

func (s *stage) flow(ctx context.Context) error {
	s.enter(display.Flowing, "Orders and their outbox rows are committed together, or roll back.")
	s.Say("The order service is open: 200 transactions a second, some roll back.")
	return wait(ctx, s.length.flow)
}

func (s *stage) outage(ctx context.Context) error {
	name := s.cast.broker.words().name
	s.enter(display.Outage, "Stopping "+name+": orders go on, events wait in PostgreSQL's WAL.")
	s.Say("Stopping " + name + ".")
	stopped := time.Now()
	s.meter.GoAway(stopped)
	if err := s.cast.broker.stop(ctx); err != nil {
		return err
	}
	s.Say(name + " is down. Nothing can be confirmed, so the slot stands still.")
	s.tell(name + " is down: orders go on, events wait in PostgreSQL's WAL.")
	if err := wait(ctx, s.length.down); err != nil {
		return err
	}
	s.Say("Starting " + name + " again.")
	s.tell("Starting " + name + " again: it takes some seconds, and events still wait.")
	if err := s.cast.broker.startAgain(ctx); err != nil {
		return err
	}
	s.away = time.Since(stopped)
	s.Say(fmt.Sprintf("%s is back after %.1f s.", name, s.away.Seconds()))
	return nil
}

const (
	catchUpWithin = time.Minute
	fresh         = 500 * time.Millisecond // an event so young is on its way, it does not wait
)

func (s *stage) catchUp(ctx context.Context) error {
	back, name := time.Now(), s.cast.broker.words().name
	s.enter(display.CatchingUp, name+" is back: what waited is sent, in order, then what is new.")
	for s.meter.Waiting(time.Now().Add(-fresh)) > 0 {
		if time.Since(back) > catchUpWithin {
			s.Say(fmt.Sprintf("%s events still wait, %.0f s later.", display.Thousands(s.meter.Waiting(time.Now())), catchUpWithin.Seconds()))
			return nil // the checker says what is missing in the end
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	caughtUp := time.Now()
	s.meter.ComeBack(caughtUp)
	s.Say(fmt.Sprintf("Caught up %s after %s took connections again.", display.Short(caughtUp.Sub(back)), name))
	s.tell("Caught up: events arrive as fast as before.")
	return nil
}

const (
	arriveWithin = time.Minute
	drainWithin  = time.Minute
)

// judge closes the order service, waits until everything is read, and compares.
func (s *stage) judge(ctx context.Context) (*outcome, error) {
	words, consumer := s.cast.broker.words(), s.cast.broker.consumer()
	s.enter(display.Judging, "The orders have stopped: comparing the database with the "+words.place+".")
	s.Say("The order service has closed. Reading the " + words.place + " to its end.")
	s.endOrders()
	s.scene.set(func(sc *scene) { sc.ordersDone = true })
	rows, err := load.ReadCommitted(ctx, s.cast.db)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	err = bounded(ctx, arriveWithin, func(ctx context.Context) error { return consumer.WaitIDs(ctx, ids) })
	if err != nil && ctx.Err() != nil {
		return nil, err
	} // What has not come by now is lost: the checker says so.
	s.endSamples()
	if err := bounded(ctx, drainWithin, consumer.Drain); err != nil {
		return nil, err
	}
	history := checker.History{
		Committed: rows, RolledBack: s.work.RolledBack(), Deliveries: consumer.Deliveries(), Marks: consumer.Marks(), MaxDuplicates: -1,
	}
	if words.once {
		history.MaxDuplicates = 0
	}
	if err := s.readRetryTable(ctx, &history); err != nil {
		return nil, err
	}
	if err := wait(ctx, 2*probeEvery); err != nil { // the last view shows the same numbers
		return nil, err
	}
	s.enter(display.Over, "Everything has been compared.")
	result := &outcome{
		Verdict: checker.Check(history), words: words, keys: keys + 1, rolledBack: len(history.RolledBack), samples: len(history.Marks),
		away: s.away, retryTable: s.retryTable,
	}
	result.up, result.outages = s.meter.Total()
	return result, nil
}

func ending(code int) string {
	if code < 0 {
		return "cdc-relay was ended by a signal"
	}
	return fmt.Sprintf("cdc-relay ended with exit code %d", code)
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
