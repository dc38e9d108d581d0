// The command teardown: it removes what the relay has created in the database.

package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// newTeardown makes the command teardown.
func newTeardown(g *command.Options) *cobra.Command {
	var yes, force bool
	cmd := &cobra.Command{
		Use:   "teardown",
		Short: "Drop the relay's slot, publication and rows",
		Long: `Drops the slot and the relay's rows. It also drops the publication, if the relay created it and no
other slot uses it, and the schema cdc_relay, if no other relay uses it. The outbox table and a
publication of your own stay.

It refuses while a relay holds the slot, and while there are deferred events or open dead letters.
Accepted gaps that are open are named, and forgotten.
Events that were committed and not delivered are then only in the outbox table. A slot that is
created later does not send them.`,
		Example: `  cdc-relay teardown --yes
  cdc-relay teardown --yes --force`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return &event.Stop{
					Code: event.ExitUsage, Reason: "usage",
					What: "teardown drops the slot", Err: errors.New("events that it has not delivered are then never sent"), Fix: "add --yes to do it",
				}
			}
			_, rc, _, err := g.Source()
			if err != nil {
				return err
			}
			return tearDown(cmd.Context(), rc, force)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that the slot is dropped; required")
	cmd.Flags().BoolVar(&force, "force", false, "also delete deferred events and open dead letters")
	return cmd
}

// holderTimeout is how long the server may show the slot as active after the relay's process has
// ended.
const holderTimeout = 5 * time.Second

// tearDown tries again for a moment while the slot is active, so that the command can follow the
// stop of a relay at once.
func tearDown(ctx context.Context, rc source.Config, force bool) error {
	give := time.After(holderTimeout)
	for {
		err := setup.Teardown(ctx, rc, force)
		var stop *event.Stop
		if !errors.As(err, &stop) || stop.Reason != "slot_active" {
			return err
		}
		select {
		case <-give:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
