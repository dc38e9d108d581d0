// status --watch: the polling loop and its displays.

package status

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/client"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// watch is `status --watch`: it polls the relay at an interval until it is interrupted, also while
// the relay is away.
type watch struct {
	every    time.Duration
	relay    func(context.Context) (*ops.Status, error)
	database databasePoll
}

// display is where a watch shows what it finds. Its methods are called by one goroutine.
type display interface {
	show(*snapshot) error
	signals() <-chan os.Signal
	signal(os.Signal) error // one of these
	close()                 // the terminal is as before
}

func newWatch(c *config.Config, g *command.Options, admin string, every time.Duration) *watch {
	return &watch{
		every:    every,
		relay:    func(ctx context.Context) (*ops.Status, error) { return client.Status(ctx, c, admin) },
		database: databasePoll{ask: func(ctx context.Context) (*databaseStatus, error) { return queryDatabase(ctx, g) }},
	}
}

// run shows what it finds until ctx is done or it is interrupted, which is how it ends well.
func (w *watch) run(ctx context.Context, d display) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer d.close()
	snapshots := make(chan *snapshot)
	go w.pollEvery(ctx, snapshots)
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case s := <-snapshots:
			err = d.show(s)
		case sig := <-d.signals():
			err = d.signal(sig)
		}
		if err != nil {
			return err
		}
	}
}

// pollEvery takes a snapshot at once and then at every interval, or later when the relay takes
// longer to answer.
func (w *watch) pollEvery(ctx context.Context, snapshots chan<- *snapshot) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case snapshots <- w.poll(ctx):
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) poll(ctx context.Context) *snapshot {
	s := &snapshot{}
	s.status, s.noAnswer = w.relay(ctx)
	s.at = time.Now()
	if s.status != nil {
		w.database.reset()
		return s
	}
	s.database, s.databaseErr = w.database.latest(ctx)
	if s.database != nil {
		view := *s.database
		view.Relay = s.relayText()
		s.database = &view
	}
	return s
}

// lines prints each snapshot as a line: for pipes, files and programs.
type lines struct {
	out     io.Writer
	json    bool
	history history
}

func (l *lines) show(s *snapshot) error {
	l.history.add(s)
	if l.json {
		return json.NewEncoder(l.out).Encode(s.json())
	}
	_, err := io.WriteString(l.out, s.at.UTC().Format(time.RFC3339)+" "+s.line(&l.history)+"\n")
	return err
}

func (l *lines) signals() <-chan os.Signal { return nil }
func (l *lines) signal(os.Signal) error    { return nil }
func (l *lines) close()                    {}

// newDisplay is a screen on a terminal that can redraw, else lines.
func newDisplay(w io.Writer, slot string, asJSON bool) display {
	if f, ok := w.(*os.File); ok && !asJSON && output.IsTerminal(w) && os.Getenv("TERM") != "dumb" {
		return newScreen(f, slot, output.HasColor(w))
	}
	return &lines{out: w, json: asJSON}
}

// runWatch is the command. An address that answers as no relay does, or not to this token, is
// refused as without --watch.
func runWatch(ctx context.Context, w io.Writer, c *config.Config, g *command.Options, admin string, every time.Duration, asJSON bool) error {
	var answered *client.AnswerError
	if _, err := client.Status(ctx, c, admin); errors.As(err, &answered) {
		return err
	}
	return newWatch(c, g, admin, every).run(ctx, newDisplay(w, c.Source.Slot, asJSON))
}
