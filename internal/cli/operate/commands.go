// Package operate is the operators' commands: dead-letters, deferred, events, resend and status.
// They read the database and store requests there, which the leading relay carries out. So they
// also work while no relay runs.
package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// NewDeadLetters makes the command dead-letters, with all actions on events that were given up.
func NewDeadLetters(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead-letters",
		Aliases: []string{"dlq"},
		Short:   "List, replay, discard, redact or purge events that could not be delivered",
		Long: `Dead letters are events that the relay has given up: the broker rejected them for good or too often,
or refused their destination for longer than retry.destination_max_age. They stay until an operator
replays, discards or purges them. The commands read the database and store requests, which the
leader carries out. They also work while no relay runs, and say so.`,
		RunE: command.NeedsSubcommand,
	}
	cmd.AddCommand(
		newList(g, dlq.DeadLetters, `  cdc-relay dead-letters list
  cdc-relay dead-letters list --group reason
  cdc-relay dead-letters list --class permanent --error too_large --from 24h
  cdc-relay dlq list --key customer-17 --state open --json | jq -r '.items[].n'`),
		newShow(g, dlq.DeadLetters, `  cdc-relay dead-letters show 1042
  cdc-relay dead-letters show 1042 --json | jq -r .payload.text`),
		newAction(g, action{
			kind: dlq.Replay, of: dlq.DeadLetters, done: "replayed",
			short: "Publish dead letters again",
			long: `Publishes dead letters again, with the header cdc_replay, before events of their key that wait. If
the broker rejects one again, it stays open, with the new error. --all leaves out rows over
source.max_event_bytes, unless --id, --class or --error is given.`,
			example: `  cdc-relay dead-letters replay 1042 --reason "limit raised"
  cdc-relay dead-letters replay 1042 --exchange orders.retry
  cdc-relay dead-letters replay --all --error too_large --rate 50/s --dry-run`,
		}),
		newAction(g, action{
			kind: dlq.Discard, of: dlq.DeadLetters, done: "discarded",
			short: "Close dead letters without publishing them",
			long: `Closes dead letters without publishing them. They stay in the list until they are purged, after
dead_letters.keep.`,
			example: `  cdc-relay dead-letters discard 1042 --reason "sent by hand"
  cdc-relay dead-letters discard --all --type order.ping --to 2026-11-20`,
		}),
		newAction(g, action{
			kind: dlq.Redact, of: dlq.DeadLetters, done: "redacted",
			short: "Remove the contents of dead letters",
			long: `Removes payload, headers and other columns, and keeps id, key and history. You can no longer replay
a redacted dead letter, only discard or purge it.`,
			example: `  cdc-relay dead-letters redact 1042 --reason "GDPR request 7"
  cdc-relay dead-letters redact --all --key customer-17`,
		}),
		newAction(g, action{
			kind: dlq.Purge, of: dlq.DeadLetters, done: "purged",
			short: "Delete dead letters, or all events of one key",
			long: `Deletes dead letters. An event that was not published is then lost. --all purges those that were
replayed or discarded, and with "--state open" the open ones. --key deletes a person's data: the
dead letters of that key in any state, and its deferred events. Only the position of a purged event
stays, until the slot can no longer send the event again.`,
			example: `  cdc-relay dead-letters purge 1042
  cdc-relay dead-letters purge --all --to 720h
  cdc-relay dead-letters purge --key customer-17 --reason "GDPR request 7"`,
		}),
		newRequest(g),
		newJob(g),
	)
	return cmd
}

// NewDeferred makes the command deferred, with all actions on events in the retry table.
func NewDeferred(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deferred",
		Aliases: []string{"retries"},
		Short:   "List, retry or dead-letter the events in the retry table",
		Long: `Deferred events could not be published when it was their turn, or they wait behind such an event of
their key. The relay sends them by itself, once their destination accepts events again or their
backoff ends.`,
		RunE: command.NeedsSubcommand,
	}
	cmd.AddCommand(
		newList(g, dlq.Deferred, `  cdc-relay deferred list
  cdc-relay deferred list --group destination
  cdc-relay deferred list --destination outbox.events/order.created --json`),
		newShow(g, dlq.Deferred, `  cdc-relay deferred show 2017`),
		newAction(g, action{
			kind: dlq.Retry, of: dlq.Deferred, done: "to be tried now",
			short: "Retry deferred events now, without waiting for their backoff",
			long: `Ends the backoff of deferred events, and tries a paused destination now. --all is about the events
with a backoff and the first one of each destination: the others follow it. A destination, as the
list shows it, is --all --destination. If nothing waits for it, the command names those for which
something does, and exits 1.

An exchange that was missing stays paused until this command says that all its queues are bound
again: who is bound later misses what was sent before.`,
			example: `  cdc-relay deferred retry 2017
  cdc-relay deferred retry orders/eu.created
  cdc-relay deferred retry --all --class transient`,
		}),
		newAction(g, action{
			kind: dlq.ToDeadLetter, of: dlq.Deferred, done: "now a dead letter",
			short: "Turn deferred events into dead letters",
			long: `Gives deferred events up: they become dead letters. With dead_letters.on_dead_letter: continue,
later events of their key are then published.`,
			example: `  cdc-relay deferred dead-letter 2017 --reason "consumer cannot read it"
  cdc-relay deferred dead-letter --all --destination legacy.events`,
		}),
	)
	return cmd
}

// newRequest makes the command request, which shows a request about one row of either table.
func newRequest(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "request NUMBER",
		Short: "Show or cancel a request about one row",
		Long: `Shows a request about one dead letter or deferred event, by the number that the action printed. A
request waits until the leader carries it out. While it waits you can cancel it: the row stays as it
is.`,
		Example: `  cdc-relay dead-letters request 317
  cdc-relay dead-letters request 317 --cancel --reason "the wrong exchange"`,
		Args: command.OneArg(1, "the number of one request", "317"),
	}
	cancel := cmd.Flags().Bool("cancel", false, "cancel the request")
	reason := cmd.Flags().String("reason", "", "`REASON` for the audit record")
	var ns []int64
	return reads(g, cmd, func(args []string) (err error) {
		ns, err = numbers("a request", "cdc-relay dead-letters show", args)
		return err
	}, func(ctx context.Context, d *adminClient, _ []string) (any, func(io.Writer) error, error) {
		q, err := d.RequestByID(ctx, ns[0])
		if err == nil && *cancel && q.State == dlq.RequestWaits {
			q, err = d.Withdraw(ctx, ns[0], dlq.Requester{Why: *reason})
		}
		return q, func(w io.Writer) error {
			if *cancel && q.State != dlq.RequestCancelled {
				fmt.Fprintln(w, "nothing to cancel: already ended")
			}
			return printRequest(w, &q)
		}, err
	})
}

func printRequest(w io.Writer, q *dlq.Request) error {
	res := result{action: action{kind: q.Kind}}
	_, err := fmt.Fprintf(printable.Text(w), "%s of %s %d%s, requested by %s at %s%s: %s%s%s\n", commandName(q.Kind), res.noun(), q.N, routeText(q),
		command.Clean(q.Who), timeText(q.At), reasonText(q.Why), command.Clean(q.State), labelledTime(" ", q.DoneAt), command.If(q.Result != "", ", "+command.Clean(q.Result)))
	return err
}

// newJob makes the command job, which shows bulk requests about rows of either table.
func newJob(g *command.Options) *cobra.Command {
	var cancel, asJSON bool
	var wait time.Duration
	var reason string
	cmd := &cobra.Command{
		Use:   "job [NUMBER]",
		Short: "Show, cancel or list bulk requests",
		Long: `Shows the progress of a bulk request: an action with --all, or "purge --key", on dead letters or
deferred events. Without a number it lists the newest. Cancelling a job keeps the work already done.`,
		Example: `  cdc-relay dead-letters job
  cdc-relay dead-letters job 12 --wait 5m
  cdc-relay dead-letters job 12 --cancel`,
		Args: command.OneArg(0, "the number of one job, or none", "12"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, err := numbers("a job", "cdc-relay dead-letters job", args)
			if err != nil {
				return err
			}
			if len(ns) == 0 && (cancel || wait != 0) {
				return command.UsageError("no job named: `cdc-relay dead-letters job` lists them")
			}
			if wait < 0 {
				return command.UsageError(fmt.Sprintf("--wait is %s, want a time such as 30s, or 0", wait))
			}
			return withAdminClient(cmd.Context(), g, wait, func(ctx context.Context, d *adminClient) error {
				if len(ns) == 0 {
					jobs, err := d.Jobs(ctx, 20)
					if err != nil {
						return err
					}
					if asJSON {
						return command.JSON(cmd.OutOrStdout(), map[string]any{"items": append([]dlq.Job{}, jobs...)})
					}
					return printJobs(cmd.OutOrStdout(), jobs)
				}
				out := &result{out: printable.Text(cmd.OutOrStdout()), line: command.Progress{W: cmd.ErrOrStderr()}, json: asJSON}
				j, err := d.Job(ctx, ns[0])
				if err != nil {
					return err
				}
				if cancel && j.State == dlq.JobRuns {
					if j, err = d.Cancel(ctx, ns[0], dlq.Requester{Why: reason}); err != nil {
						return err
					}
				}
				if cancel && j.State == dlq.JobDone && !asJSON {
					fmt.Fprintln(out.out, "nothing to cancel: already ended")
				}
				runs := true
				if j.State == dlq.JobRuns {
					if j, runs, err = d.waitForJob(ctx, j, wait, wait > 0, out.progress); err != nil {
						return err
					}
				}
				out.kind = j.Kind
				return out.reportJob(j, runs)
			})
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the job")
	command.Duration(cmd.Flags(), &wait, "wait", 0, "wait at most this long for its end")
	cmd.Flags().StringVar(&reason, "reason", "", "`REASON` for the audit record")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// adminClient is an operator's command at work: its connections to the database and its
// configuration. It works whether or not a relay runs.
type adminClient struct {
	*dlq.Admin
	cfg  *config.Config
	pool *pgxpool.Pool
}

// commandTimeout bounds a command, on top of --wait, so that a server that no longer answers does
// not block it.
const commandTimeout = 2 * time.Minute

// withAdminClient connects to the database and calls do. wait is how much longer than usual do may
// take.
func withAdminClient(ctx context.Context, g *command.Options, wait time.Duration, do func(ctx context.Context, d *adminClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout+wait)
	defer cancel()
	d, err := openAdminClient(ctx, g)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	return withExitCode(do(ctx, d))
}

// openAdminClient connects to the database. The caller closes the pool.
func openAdminClient(ctx context.Context, g *command.Options) (*adminClient, error) {
	c, rc, _, err := g.Source()
	if err != nil {
		return nil, err
	}
	rc.Log = zap.NewNop()
	connecting, connected := context.WithTimeout(ctx, command.DatabaseTimeout)
	defer connected()
	pool, err := source.Connect(connecting, rc)
	if err != nil {
		return nil, err
	}
	d := &adminClient{Admin: dlq.New(pool, c.Source.Slot), cfg: c, pool: pool}
	d.OnDeadLetter = c.DeadLetters.OnDeadLetter
	// The commands often run as the relay's role, and perhaps before any relay was started.
	if err = schema.Verify(connecting, pool, schema.Trust{Replication: true}); err == nil {
		err = withExitCode(d.Check(ctx))
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

// reads completes a command that shows what find returns, as text or with --json. check looks at
// the arguments and flags before the database is asked.
func reads(g *command.Options, cmd *cobra.Command, check func(args []string) error, find func(ctx context.Context, d *adminClient, args []string) (v any, text func(io.Writer) error, err error)) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := check(args); err != nil {
			return err
		}
		return withAdminClient(cmd.Context(), g, 0, func(ctx context.Context, d *adminClient) error {
			v, text, err := find(ctx, d, args)
			switch {
			case err != nil:
				return err
			case *asJSON:
				return command.JSON(cmd.OutOrStdout(), v)
			}
			return text(cmd.OutOrStdout())
		})
	}
	return cmd
}

// withExitCode turns errors of the database and of dlq into errors with an exit code and a fix.
func withExitCode(err error) error {
	var bad *dlq.BadInput
	var slot *dlq.NoSlot
	var server *pgconn.PgError
	switch {
	case errors.As(err, &bad):
		return command.UsageError("--" + strings.ReplaceAll(bad.Name, "_", "-") + " " + bad.What)
	case errors.Is(err, dlq.ErrNoSchema):
		return &event.Stop{
			Code: event.ExitFailure, Reason: "schema", What: "the tables of schema cdc_relay are missing in this database, or of an older version",
			Fix: "run `cdc-relay init`, or start this version of the relay once; source.url may name another database",
		}
	case errors.As(err, &slot):
		return &event.Stop{Code: event.ExitFailure, Reason: "no_slot", What: slot.Error(), Fix: "correct source.slot, or run `cdc-relay init`"}
	case errors.As(err, &server) && server.Code == "42501":
		return &event.Stop{
			Code: event.ExitFailure, Reason: "rights", What: "permission denied for the role of source.url", Err: err,
			Fix: "use the relay's role, or GRANT what docs/dead-letters.md#a-role-for-operators lists",
		}
	}
	return err
}
