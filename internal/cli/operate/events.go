// The command events.

package operate

import (
	"context"
	"fmt"
	"io"

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
		Short: "Show where an event is: in flight, deferred, dead letter, settled, or not held",
		Long: `Looks up the id in the retry table, the dead letters and the outbox tables. An event in an outbox
table that is neither deferred nor dead is settled once the slot has passed its transaction. The
slot's position is known a few seconds later; with a running relay and track_commit_timestamp = on
it is known at once.`,
		Example: `  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10
  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10 --json | jq -r .state`,
		Args: command.OneArg(1, "the id of one event", "6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAdminClient(cmd.Context(), g, 0, func(ctx context.Context, d *adminClient) error {
				e, err := d.Event(ctx, args[0], wiring.Outboxes(d.cfg), relayState(ctx, d.cfg))
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

// relayState is what the relay has read and not settled; zero when it does not answer.
func relayState(ctx context.Context, c *config.Config) dlq.Relay {
	status, err := client.Status(ctx, c, "")
	if err != nil || status.Slot.Name != c.Source.Slot {
		return dlq.Relay{}
	}
	r := dlq.Relay{Streaming: status.State == ops.StateStreaming || status.State == ops.StateIdle || status.State == ops.StateCatchingUp}
	if oldest := status.InFlight.OldestUnsettled; oldest != nil {
		r.OldestUnsettled = *oldest
	}
	return r
}

func printEvent(w io.Writer, e *dlq.Event) error {
	var d details
	d.line("event", "%s", e.ID)
	d.line("state", "%s: %s", e.State, e.Why)
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
	_, err := fmt.Fprint(w, d.String())
	return err
}
