package operate

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// NewDeferred is what can be done about events that wait.
func NewDeferred(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deferred",
		Aliases: []string{"retries"},
		Short:   "List, retry or give up events that wait in the retry table",
		Long: `Parked rows are events that could not be published when their turn came, and those of their key
behind them. They are sent as soon as their destination takes events again, or their backoff is
over: nothing has to be done about them.`,
		RunE: command.NeedsSubcommand,
	}
	cmd.AddCommand(
		newList(g, dlq.Parked, `  cdc-relay deferred list
  cdc-relay deferred list --destination outbox.events/order.created --json`),
		newShow(g, dlq.Parked, `  cdc-relay deferred show 2017`),
		newAction(g, action{
			kind: dlq.Retry, of: dlq.Parked, done: "to be tried now",
			short: "Try parked rows now, whatever their backoff",
			long: `Ends the backoff of rows, as if its time had come. Rows without one go as soon as their
destination takes events again, and are not among those of --all.`,
			example: `  cdc-relay deferred retry 2017
  cdc-relay deferred retry --all --class transient`,
		}),
		newAction(g, action{
			kind: dlq.Bury, of: dlq.Parked, done: "now a dead letter",
			short: "Make dead letters of parked rows",
			long: `Gives rows up: they become dead letters. With dead_letters.followers: release the later events of
their key go on without them.`,
			example: `  cdc-relay deferred dead-letter 2017 --reason "consumer cannot read it"
  cdc-relay deferred dead-letter --all --destination legacy.events`,
		}),
	)
	return cmd
}
