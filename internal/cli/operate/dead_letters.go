package operate

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// NewDeadLetters is what can be done about events that were given up.
func NewDeadLetters(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead-letters",
		Aliases: []string{"dlq"},
		Short:   "List, replay, discard, redact or purge events that could not be delivered",
		Long: `Dead letters are events that were given up: refused for good by the broker, refused too often, or
bound for a destination that refused for longer than retry.destination_max_age. They stay until
somebody decides. These commands read the database and write down what is asked for; the relay
that leads carries it out. They work while no relay runs, and say so.`,
		RunE: command.NeedsSubcommand,
	}
	cmd.AddCommand(
		newList(g, dlq.Letters, `  cdc-relay dead-letters list
  cdc-relay dead-letters list --class permanent --error too_large --from 24h
  cdc-relay dlq list --key customer-17 --state open --json | jq -r '.items[].n'`),
		newShow(g, dlq.Letters, `  cdc-relay dead-letters show 1042
  cdc-relay dead-letters show 1042 --json | jq -r .payload.text`),
		newAction(g, action{
			kind: dlq.Replay, of: dlq.Letters, done: "replayed",
			short: "Publish dead letters again",
			long: `Publishes dead letters again, with the header cdc_replay, before the events of their key that wait
behind them. What the broker refuses again stays open, with its answer.`,
			example: `  cdc-relay dead-letters replay 1042 --reason "limit raised"
  cdc-relay dead-letters replay 1042 --exchange orders.retry
  cdc-relay dead-letters replay --all --error too_large --rate 50/s --dry-run`,
		}),
		newAction(g, action{
			kind: dlq.Discard, of: dlq.Letters, done: "discarded",
			short: "Close dead letters unpublished",
			long: `Closes dead letters: they are not published any more. They stay listed until they are purged,
after dead_letters.keep.`,
			example: `  cdc-relay dead-letters discard 1042 --reason "sent by hand"
  cdc-relay dead-letters discard --all --type order.ping --to 2026-11-20`,
		}),
		newAction(g, action{
			kind: dlq.Redact, of: dlq.Letters, done: "redacted",
			short: "Remove the contents of dead letters",
			long: `Removes payload, headers and extra columns; id, key and history stay. A redacted dead letter
cannot be replayed any more, only discarded or purged.`,
			example: `  cdc-relay dead-letters redact 1042 --reason "GDPR request 7"
  cdc-relay dead-letters redact --all --key customer-17`,
		}),
		newAction(g, action{
			kind: dlq.Purge, of: dlq.Letters, done: "purged",
			short: "Remove dead letters, or all of one key, for good",
			long: `Removes all of a dead letter: what was not published is then lost. --all purges those that were
replayed or discarded, and with --state open the open ones. --key removes a person's data: what
there is of a key in both tables, dead letters of any state and parked rows. Of a purged row its
bare position stays until the slot cannot send the event again.`,
			example: `  cdc-relay dead-letters purge 1042
  cdc-relay dead-letters purge --all --to 720h
  cdc-relay dead-letters purge --key customer-17 --reason "GDPR request 7"`,
		}),
		newRequest(g),
		newJob(g),
	)
	return cmd
}
