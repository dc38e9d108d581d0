// The stage plays the acts one after the other.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/display"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// stage is one performance.
type stage struct {
	out     display.Display
	stdout  io.Writer // for what comes below the display's last view
	colours display.Paint
	length  length
	keep    bool // leave everything running after the verdict

	began time.Time
	cast  cast
	work  *load.Workload
	meter *display.Meter
	probe *probe
	away  time.Duration // how long the broker took no connections
	retryTable

	// return when the order service, the sampling of the slot have ended
	endOrders, endSamples func()
	closing               sync.WaitGroup

	scene scene
}

// play gives the whole performance, and ends everyone, however it goes. It returns nil when the
// verdict is good, errInterrupted when ctx ended before there was one.
func (s *stage) play(ctx context.Context) error {
	s.began, s.meter = time.Now(), display.NewMeter()
	acting, fail := context.WithCancelCause(ctx)
	audience, leave := context.WithCancel(context.Background())
	var drawing sync.WaitGroup
	s.enter(display.Starting, "Starting PostgreSQL, "+s.cast.broker.words().name+" and a build of cdc-relay.")
	drawing.Go(func() { s.draw(audience) })

	result, err := s.acts(acting, fail)
	if cause := context.Cause(acting); err != nil && cause != nil {
		err = cause // why the act was cut short, not where
	}
	if err != nil && ctx.Err() != nil {
		s.Say("Interrupted: stopping everything.")
		s.tell("Interrupted: stopping everything.")
		err = errInterrupted
	}
	leave()
	drawing.Wait()
	s.out.Close()
	if err == nil {
		err = s.conclude(ctx, result)
	}
	fail(nil)
	s.closing.Wait()
	return errors.Join(err, s.cast.Close())
}

func (s *stage) acts(ctx context.Context, fail context.CancelCauseFunc) (*outcome, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	s.begin(ctx, fail)
	for _, act := range []func(context.Context) error{s.flow, s.poison, s.outage, s.catchUp, s.replay, s.mistake} {
		if err := act(ctx); err != nil {
			return nil, err
		}
	}
	return s.judge(ctx)
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
