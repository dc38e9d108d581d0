// The command dead-letters.

package operate

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// NewDeadLetters is the command dead-letters, with all actions on events that were given up.
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
