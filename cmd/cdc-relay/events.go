package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

func newEvents(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Say where an event is",
		RunE:  needsSubcommand,
	}
	var asJSON bool
	show := &cobra.Command{
		Use:   "show ID",
		Short: "Say where the event of an id is: in flight, parked, dead, settled, or not held",
		Long: `Looks for the id in the retry table, in the dead letters and in the outbox tables. An event whose
row is in an outbox table, and that is neither parked nor dead, is settled once the slot is past
its transaction. That is known some seconds later, and at once with track_commit_timestamp = on
beside a running relay.`,
		Example: `  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10
  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10 --json | jq -r .state`,
		Args: oneArg(1, "the id of one event", "6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.atDesk(cmd.Context(), 0, func(ctx context.Context, d *desk) error {
				e, err := d.Event(ctx, args[0], outboxes(d.cfg), askedRelay(ctx, d.cfg))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), e)
				}
				return printEvent(cmd.OutOrStdout(), e)
			})
		},
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(show)
	return cmd
}

// askedRelay is what the relay says of what it has read and not settled; nothing when it does not answer.
func askedRelay(ctx context.Context, c *config.Config) dlq.Relay {
	status, err := fetchStatus(ctx, c, c.Admin.Listen)
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
	d.line("event", "%s", clean(e.ID))
	d.line("state", "%s: %s", e.State, clean(e.Why))
	if e.Table != "" {
		d.line("row", "in %s%s", clean(e.Table), at(", committed ", e.CommittedAt))
	}
	for i := range e.Rows {
		r := &e.Rows[i]
		command, since := "deadletters", r.DiedAt
		switch {
		case r.State == dlq.Waiting:
			command, since = "parked", &r.ParkedAt
		case r.ClosedAt != nil:
			since = r.ClosedAt
		}
		whose := ""
		if r.Copied {
			whose = ", another system's"
		}
		d.line(ifSet(i == 0, "see"), "cdc-relay %s show %d (%s since %s%s)", command, r.N, r.State, stamp(*since), whose)
	}
	_, err := fmt.Fprint(w, d.String())
	return err
}
