// The command run: it puts the parts of the relay together and runs them until a signal.

package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	opsadmin "github.com/cdc-relay/cdc-relay/internal/ops/admin"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/tracing"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// newRun makes the command run.
func newRun(g *command.Options) *cobra.Command {
	var holdOnFatal bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay events until stopped",
		Long: `Reads the replication slot and publishes to the broker until SIGTERM or SIGINT. It then delivers
what it has already read, for at most delivery.shutdown_grace, and exits. A second signal ends it
at once. While PostgreSQL or the broker cannot be reached, it waits and tries again.

A change of the configuration needs a restart. Passwords in files are read at every connect.`,
		Example: `  cdc-relay run -c cdc-relay.yaml
  cdc-relay run --hold-on-fatal`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(g.Path(), os.Environ())
			if err != nil {
				return err
			}
			setGCPercent()
			// The sink reports a closed stdout. Without this Go would end the process silently. And
			// a terminal that is closed ends no relay.
			signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
			recent := &wiring.RecentLog{}
			log := wiring.NewLogger(c.Log, recent)
			defer log.Sync() //nolint:errcheck // stderr cannot be synced everywhere, and nobody is left to report it to
			for _, sentence := range c.NotRead {
				log.Warn(sentence)
			}
			reading, draining, stop := untilSignalled(cmd.Context(), log)
			defer stop()
			if err := run(reading, draining, c, g.Build, log, recent, holdOnFatal); err != nil {
				log.Error("stopped", zap.Error(err), zap.Int("exit", command.ExitCode(err, true)))
				return command.Logged{Err: err}
			}
			log.Info("stopped")
			return nil
		},
	}
	cmd.Flags().BoolVar(&holdOnFatal, "hold-on-fatal", false, "on exit 3 or 4 stay up, not ready, and report the reason")
	return cmd
}

// setGCPercent trades a little processor time for memory. The live heap is the in-flight budget and
// the broker's buffers; garbage may grow to half of that instead of all of it. But the first
// collection is at 8 MB, twice of what a start allocates: at a half of next to nothing a start
// would collect three times, which takes a third of its processor time. GOGC, when set, wins.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200) // of 4 MB
		runtime.AddCleanup(new([64]byte), func(percent int) { debug.SetGCPercent(percent) }, 50)
	}
}

// untilSignalled returns two contexts: the first signal ends reading, the second ends draining too.
// A third signal is no longer caught, so it ends the process whatever hangs.
func untilSignalled(ctx context.Context, log *zap.Logger) (reading, draining context.Context, stop func()) {
	reading, endReading := context.WithCancel(ctx)
	draining, endDraining := context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := draining.Done()
	go func() {
		for _, end := range []context.CancelFunc{endReading, endDraining} {
			select {
			case s := <-signals:
				log.Info("stopping: received signal", zap.Stringer("signal", s))
				end()
			case <-done:
				return
			}
		}
		signal.Stop(signals)
	}()
	return reading, draining, func() {
		signal.Stop(signals)
		endReading()
		endDraining()
	}
}

// run puts the parts together and runs them until the stream ends, because the stream knows when
// everything is finished.
func run(reading, draining context.Context, c *config.Config, b command.Build, log *zap.Logger, recent *wiring.RecentLog, holdOnFatal bool) error {
	v := newProcess(c, b, recent)
	tracer := newTracer(c, v.build.Version, log)
	out, columns, err := wiring.OpenSink(c, log, v.metrics, traceparentsOf(tracer), func() { v.reached.Store(true) })
	if err != nil {
		return err
	}
	v.sink = out
	v.trace(tracer)
	rc, err := wiring.Replication(c, columns, log)
	if err != nil {
		return err
	}
	v.source = rc
	v.check = func(ctx context.Context) (any, error) { return wiring.Check(ctx, c, rc, zap.NewNop()) }
	rc.Hooks = source.Hooks{
		Skipped: v.metrics.Skipped, Stray: v.metrics.Stray, Reconnect: v.metrics.StreamReconnected,
		Beat: v.beat, Monitor: v.watchdog.monitor.Work, FlushLimit: v.watchdog.flushLimit.Work,
	}
	rc.NewLine = func(ctx context.Context, t source.Term) (source.Line, error) {
		l, err := newTerm(ctx, c, v, columns, t, log)
		if err != nil {
			return nil, err
		}
		v.line.Store(l)
		return l, nil
	}
	if v.stream, err = replication.New(rc); err != nil {
		return err
	}
	defer v.stream.Close()
	v.metrics.Watch(v.snapshot)
	admin, err := opsadmin.New(v.adminConfig(c, log))
	if err != nil {
		return err
	}
	log.Info("starting", zap.String("version", v.build.Version), zap.String("slot", c.Source.Slot), zap.String("admin", admin.Addr()))

	group, ctx := errgroup.WithContext(context.Background())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading, stopReading := context.WithCancel(reading)
	defer stopReading()
	draining, stopDraining := context.WithCancel(draining)
	defer stopDraining()
	// A sink that can never work ends the relay. Nothing is confirmed after that, so the stop does
	// not wait for anything.
	context.AfterFunc(ctx, func() {
		stopReading()
		stopDraining()
	})
	manager := &systemd{grace: c.Delivery.ShutdownGrace, status: admin.Status, health: admin.Health, log: log}
	group.Go(func() error { return admin.Run(ctx) })
	group.Go(func() error { return manager.Run(ctx, reading) })
	group.Go(func() error { return out.Run(ctx) })
	group.Go(func() error { return v.stream.Survey(ctx) })
	if !processorsSettled() {
		group.Go(func() error { return newProcessors(v.isLineFull).Run(ctx) })
	}
	if tracer != nil {
		group.Go(func() error { return tracer.Run(ctx) })
	}
	group.Go(func() error {
		defer cancel()
		for {
			err := v.stream.Run(reading, draining)
			if !holdOnFatal || !v.stayUp(reading, err, log) {
				manager.setEnded(err)
				return err
			}
		}
	})
	return group.Wait()
}

// isLineFull reports whether the line has no room for the event that was read last.
func (v *process) isLineFull() bool {
	l := v.line.Load()
	return l != nil && l.IsFull()
}

// ending is why the stream has ended for good, while the process stays up to report it.
type ending struct {
	stop *event.Stop
	at   time.Time
}

// stayUp keeps the process up after an end that only a person can fix (exit 3 or 4), for
// orchestrators that would start the relay again and again. Meanwhile the relay is not ready and
// reports why. It returns true when an operator has decided, so that the stream may run again. It
// returns false when ctx is done, or when err is another end.
func (v *process) stayUp(ctx context.Context, err error, log *zap.Logger) (again bool) {
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitOperator && stop.Code != event.ExitMapping {
		return false
	}
	v.ended.Store(&ending{stop, time.Now()})
	log.Error("relaying has ended, process stays up to report it", zap.Error(err))
	if !v.stream.AwaitDecision(ctx) {
		return false
	}
	log.Info("the slot's record was changed by an operator: relaying begins again")
	v.ended.Store(nil)
	return true
}

// show puts the end into a snapshot, in place of the stream's phase.
func (e *ending) show(out *ops.Snapshot) {
	out.Phase, out.Why, out.Reason, out.Finding, out.Since = ops.Stopped, e.stop.Error(), e.stop.Reason, e.stop.Finding, e.at
}

// newTracer makes the tracer that the environment asks for, or returns nil when it asks for none.
func newTracer(c *config.Config, version string, log *zap.Logger) *tracing.Tracer {
	driver := c.Sink.Driver
	return tracing.New(tracing.Config{Version: version, Slot: c.Source.Slot, System: driver.Name, Operation: driver.Operation, Log: log})
}

// traceparentsOf returns the function that makes traceparents for messages, or nil without a
// tracer.
func traceparentsOf(t *tracing.Tracer) wiring.Traceparents {
	if t == nil {
		return nil
	}
	return t.Traceparent
}

// trace connects a tracer, which may be nil, to the sink.
func (v *process) trace(t *tracing.Tracer) {
	v.tracer = t
	if t != nil {
		t.SendsTo(func(ev *event.Event) tracing.Destination { return tracing.Destination(v.sink.SentTo(ev)) })
	}
}

// traced adds spans of published events to the hooks of the line.
func (v *process) traced(h relay.Hooks) relay.Hooks {
	if t := v.tracer; t != nil {
		h.Published = func(_ int, ev *event.Event, refusals int, at time.Time) { t.Published(ev, refusals, at) }
	}
	return h
}

// tracedRetryTable adds spans of dead letters to the hooks of the retry table. The first attempt
// does not count as a retry.
func (v *process) tracedRetryTable(h retry.Hooks) retry.Hooks {
	if t := v.tracer; t != nil {
		h.DeadLettered = func(ev *event.Event, reason sink.Reason, attempts int) {
			t.DeadLettered(ev, max(attempts-1, 0), string(reason), time.Now())
		}
	}
	return h
}
