// The command deferred.

package operate

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// NewDeferred is the command deferred, with all actions on events in the retry table.
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
  cdc-relay deferred list --destination outbox.events/order.created --json`),
		newShow(g, dlq.Deferred, `  cdc-relay deferred show 2017`),
		newAction(g, action{
			kind: dlq.Retry, of: dlq.Deferred, done: "to be tried now",
			short: "Retry deferred events now, without waiting for their backoff",
			long: `Ends the backoff of deferred events, and tries a paused destination now. --all is about the events
with a backoff and the first one of each destination: the others follow it.

An exchange that was missing stays paused until this command says that all its queues are bound
again: who is bound later misses what was sent before.`,
			example: `  cdc-relay deferred retry 2017
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
