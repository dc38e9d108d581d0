// status --watch: it polls the relay, or the database while the relay does not answer.

package status

import (
	"context"
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
	database func(context.Context) (*databaseStatus, error)

	// The last answer of the database, and when it is queried again.
	known     *databaseStatus
	knownErr  error
	nextQuery time.Time
}

const (
	// The database is polled seldom, and less often when it is slow: each poll counts rows.
	minDatabaseInterval = 5 * time.Second
	databaseShare       = 10 // of the time between two queries, one part for the query
)

// runWatch is the command. An address that answers as no relay does, or not to this token, is
// refused as without --watch.
func runWatch(ctx context.Context, out io.Writer, c *config.Config, g *command.Options, admin string, every time.Duration, asJSON bool) error {
	var answered *client.AnswerError
	if _, err := client.Status(ctx, c, admin); errors.As(err, &answered) {
		return err
	}
	w := &watch{
		every:    every,
		relay:    func(ctx context.Context) (*ops.Status, error) { return client.Status(ctx, c, admin) },
		database: func(ctx context.Context) (*databaseStatus, error) { return queryDatabase(ctx, g) },
	}
	show := func(s *snapshot) error { return s.print(out, asJSON) }
	if f, ok := out.(*os.File); ok && !asJSON && output.IsTerminal(out) && os.Getenv("TERM") != "dumb" {
		show = (&screen{out: f, slot: c.Source.Slot, colour: output.HasColor(out)}).draw
	}
	return w.run(ctx, show)
}

// run shows what it finds at every interval until ctx is done or it is interrupted, which is how it
// ends well.
func (w *watch) run(ctx context.Context, show func(*snapshot) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		s := w.poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := show(s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *watch) poll(ctx context.Context) *snapshot {
	s := &snapshot{}
	s.status, s.noAnswer = w.relay(ctx)
	s.at = time.Now()
	if s.status != nil {
		w.nextQuery = time.Time{} // the next time it is silent begins with a new query
		return s
	}
	if !s.at.Before(w.nextQuery) {
		within, cancel := context.WithTimeout(ctx, command.DatabaseTimeout)
		w.known, w.knownErr = w.database(within)
		cancel()
		w.nextQuery = s.at.Add(max(minDatabaseInterval, databaseShare*time.Since(s.at)))
	}
	s.databaseErr = w.knownErr
	if w.known != nil {
		known := *w.known
		known.setCause(s.noAnswer)
		s.database = &known
	}
	return s
}
