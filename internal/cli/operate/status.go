// The command status: it shows what a relay is doing, once or, with --watch, again and again.

package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// NewStatus makes the command status.
func NewStatus(g *command.Options) *cobra.Command {
	var admin string
	var asJSON, watching bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the relay is doing",
		Long: `Asks the running relay: at admin.socket, which needs no token, or without a socket at admin.listen
with a token of admin.tokens. If the relay does not answer, or wants another token, status shows
what the database knows, and exits 0 if the slot is active, else 1. What needs somebody comes first.
The JSON has the same members whoever answered: answered_by is relay, database or nobody, and what
only the relay knows is null without it.

With --watch it repeats this until interrupted, then exits 0. On a terminal it redraws the screen.
Elsewhere it prints one line each time, what is in danger first, or one JSON object with --json. It
keeps watching while the relay is away. The console has graphs of the last hour.`,
		Example: `  cdc-relay status
  cdc-relay status --watch
  cdc-relay status --watch --every 10s >> status.log
  cdc-relay status --admin unix:/run/cdc-relay/admin.sock
  cdc-relay status --admin https://10.0.0.7:8464 --json | jq .slot.lag_bytes`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.Load()
			if err != nil {
				return err
			}
			switch {
			case watching && every < shortestEvery:
				return command.UsageError(fmt.Sprintf("--every is %s, want at least %s", every, shortestEvery))
			case watching:
				return runWatch(cmd.Context(), cmd.OutOrStdout(), c, g, admin, every, asJSON)
			case cmd.Flags().Changed("every"):
				return command.UsageError("--every has no effect without --watch")
			}
			status, err := command.Status(cmd.Context(), c, admin)
			if err == nil {
				return showStatus(cmd.OutOrStdout(), status, asJSON)
			}
			var answered *command.AnswerError
			if errors.As(err, &answered) {
				return err
			}
			return showDatabase(cmd.Context(), cmd.OutOrStdout(), c, g, asJSON, err)
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "", "`ADDRESS` of the relay: host:port, https://host:port or unix:/path\n(default admin.socket, else admin.listen)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watching, "watch", "w", false, "repeat until interrupted")
	command.Duration(cmd.Flags(), &every, "every", time.Second, "with --watch: the time between two polls")
	return cmd
}

// shortestEvery is the least value of --every.
const shortestEvery = 100 * time.Millisecond

func showStatus(w io.Writer, s *ops.Status, asJSON bool) error {
	if asJSON {
		return command.JSON(w, relayJSON(s))
	}
	return writeStatus(w, s, command.HasColor(w))
}

// snapshot is one look: the relay's status or, when the relay does not answer, what the database
// knows.
type snapshot struct {
	at          time.Time
	status      *ops.Status
	noAnswer    error           // why status is nil
	database    *databaseStatus // nil when the relay has answered, or the database does not answer
	databaseErr error           // why the database did not answer
}

// The states that status shows when no relay tells its own, in addition to ops.StateStopped.
const (
	stateNotAnswering = "not answering" // the slot is active
	stateNoAccess     = "no access"     // a relay answers, and wants a token or another user
	stateUnknown      = "unknown"       // the database does not answer either
)

// stateText returns the state, and why.
func (s *snapshot) stateText() (state, why string) {
	switch {
	case s.status != nil:
		return s.status.State, s.status.Why
	case s.database != nil:
		return s.database.State, s.database.Why
	}
	return stateUnknown, "the relay " + notAsked(s.noAnswer) + "; nor does the database: " + s.databaseErr.Error()
}

// print prints a snapshot on one line: for pipes, files and programs.
func (s *snapshot) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return command.JSONLine(out, s.json())
	}
	_, err := io.WriteString(out, s.at.UTC().Format(time.RFC3339)+" "+s.line()+"\n")
	return err
}

// json returns what --json prints of a snapshot.
func (s *snapshot) json() any {
	switch {
	case s.status != nil:
		return relayJSON(s.status)
	case s.database != nil:
		return s.database.json()
	}
	state, why := s.stateText()
	return withoutRelay{
		Status:     ops.Status{AnsweredBy: ops.AnsweredByNobody, State: state, Why: why, Role: ops.RoleNone, Now: s.at.UTC()},
		RelayError: notAsked(s.noAnswer),
	}
}

// line returns a snapshot as one line of plain text.
func (s *snapshot) line() string {
	state, why := s.stateText()
	if why != "" {
		state += ": " + why
	}
	if danger := s.danger(); danger != "" {
		state = danger + " | " + state
	}
	switch st := s.status; {
	case st != nil:
		t := statusText{status: st}
		state += fmt.Sprintf(" | %s%s | lag %s, %s%s | in flight %s | published %s, %.1f/s | deferred %s%s | dead %s", st.Role, command.If(!st.Broker.Up, " | broker down"+downText(st)),
			showLag(st.Slot.LagSeconds), showBehind(st), t.asOf(&st.Slot.CheckedAt), command.Thousands(uint64(st.InFlight.Events)), command.Thousands(st.Totals.Published),
			st.Rates.PublishedPerSecond, command.Thousands(uint64(st.Deferred.Events)), t.asOf(st.AsOf.Deferred), command.Thousands(uint64(st.DeadLetters.Open)))
	case s.database != nil && s.database.SlotExists:
		state += " | slot " + command.Bytes(s.database.LagBytes) + " behind" + s.databaseAsOf()
	}
	return command.Clean(state)
}

// databaseAsOf says when the database gave its answer, unless that was just now.
func (s *snapshot) databaseAsOf() string {
	t := statusText{status: &ops.Status{Now: s.at}}
	return t.asOf(&s.database.Now)
}

// danger returns what somebody has to look at first, or "" when nothing needs anybody.
func (s *snapshot) danger() string {
	var slot *ops.SlotStatus
	dead := 0
	switch {
	case s.status != nil:
		slot, dead = &s.status.Slot, s.status.DeadLetters.Open
	case s.database != nil:
		slot = &s.database.Slot
		if d := s.database.DeadLetters; d != nil {
			dead = d.Open
		}
	default:
		return ""
	}
	if text := slotDanger(slot); text != "" {
		return "DANGER: the " + text
	}
	return command.If(dead > 0, command.Count(dead, "dead letter")+" open")
}

// watch is `status --watch`: it asks the relay, and the database while the relay does not answer.
type watch struct {
	relay    func(context.Context) (*ops.Status, error)
	database func(context.Context) (*databaseStatus, error)

	// The last answer of the database, and when it is queried again.
	known     *databaseStatus
	knownErr  error
	nextQuery time.Time
}

// How often the database is asked.
const (
	// It is asked seldom, and less often when it is slow, because each query counts rows.
	minDatabaseInterval = 5 * time.Second
	databaseShare       = 10 // one part in so many of the time is for the query
)

// runWatch prints a snapshot at every interval, until ctx is done or it is interrupted, which is no
// error. As without --watch, an address at which another program answers is an error.
func runWatch(ctx context.Context, out io.Writer, c *config.Config, g *command.Options, admin string, every time.Duration, asJSON bool) error {
	w := &watch{
		relay:    func(ctx context.Context) (*ops.Status, error) { return command.Status(ctx, c, admin) },
		database: func(ctx context.Context) (*databaseStatus, error) { return queryDatabase(ctx, g) },
	}
	var answered *command.AnswerError
	if _, err := w.relay(ctx); errors.As(err, &answered) {
		return err
	}
	show := func(s *snapshot) error { return s.print(out, asJSON) }
	if f, ok := out.(*os.File); ok && !asJSON && command.IsTerminal(out) && os.Getenv("TERM") != "dumb" {
		show = (&screen{out: f, slot: c.Source.Slot, colour: command.HasColor(out)}).draw
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(every)
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

// poll asks the relay, and the database when it is its turn.
func (w *watch) poll(ctx context.Context) *snapshot {
	s := &snapshot{}
	s.status, s.noAnswer = w.relay(ctx)
	s.at = time.Now()
	if s.status != nil {
		w.nextQuery = time.Time{} // the next silence begins with a new query
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
