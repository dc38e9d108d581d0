// The command events.

package operate

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pglogrepl"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/client"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// NewEvents is the command events: where an event is.
func NewEvents(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show where an event is",
		RunE:  command.NeedsSubcommand,
	}
	var asJSON bool
	show := &cobra.Command{
		Use:   "show ID",
		Short: "Show where an event is, by its id",
		Long: `Looks up the id in the retry table, the dead letters and the outbox tables, and prints its state:

  not seen             its row is committed, and no relay has read it
  in flight            a relay has read it, and it is not settled
  deferred             it is in the retry table: why, and until when or behind which event
  dead letter          the relay gave it up
  delivered            the broker has confirmed it
  not in the table     it was deleted, or never written
  not known to be sent the slot is past it, and no confirm of it is recorded

A delivery is recorded in the database moments after the confirm. The time of the commit needs
track_commit_timestamp = on.`,
		Example: `  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10
  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10 --json | jq -r .state`,
		Args: command.OneArg(1, "the id of one event", "6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAdminClient(cmd.Context(), g, 0, func(ctx context.Context, d *adminClient) error {
				e, err := d.Event(ctx, args[0], wiring.Outboxes(d.cfg), func(ctx context.Context) dlq.Relay { return relayState(ctx, d.cfg) })
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(cmd.OutOrStdout(), e)
				}
				return printEvent(cmd.OutOrStdout(), e)
			})
		},
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(show)
	return cmd
}

// relayState is how far the relay that leads is; zero when it does not answer.
func relayState(ctx context.Context, c *config.Config) dlq.Relay {
	status, err := client.Status(ctx, c, "")
	if err != nil || status.Slot.Name != c.Source.Slot || status.Role != ops.RoleLeader {
		return dlq.Relay{}
	}
	settled, err := pglogrepl.ParseLSN(status.InFlight.SettledLSN)
	if err != nil { // it is not known, or the relay is of an earlier version
		settled = 0
	}
	return dlq.Relay{Streaming: true, InFlight: status.InFlight.Events, Settled: settled}
}

func printEvent(w io.Writer, e *dlq.Event) error {
	var d details
	d.line("event", "%s", e.ID)
	d.line("state", "%s: %s", e.State, e.Why)
	if e.State == dlq.EventUnknown {
		d.line("to send it", "`cdc-relay recover` after a lost slot; else `cdc-relay resend --id %s`", e.ID)
	}
	if e.Table != "" {
		d.line("row", "in %s%s", e.Table, labelledTime(", committed ", e.CommittedAt))
	}
	for i := range e.Rows {
		r := &e.Rows[i]
		name, since := "dead-letters", r.DiedAt
		switch {
		case r.State == dlq.Waiting:
			name, since = "deferred", &r.DeferredAt
		case r.ClosedAt != nil:
			since = r.ClosedAt
		}
		whose := ""
		if r.Copied {
			whose = ", another system's"
		}
		d.line(output.If(i == 0, "see"), "cdc-relay %s show %d (%s since %s%s)", name, r.N, r.State, timeText(*since), whose)
	}
	for i := range e.Others {
		o := &e.Others[i]
		d.line(output.If(i == 0, "also"), "in %s%s: %s: %s", o.Table, labelledTime(", committed ", o.CommittedAt), o.State, o.Why)
	}
	_, err := fmt.Fprint(w, d.String())
	return err
}
