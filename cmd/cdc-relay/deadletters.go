package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// newDeadLetters is what can be done about events that were given up.
func newDeadLetters(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deadletters",
		Aliases: []string{"dlq"},
		Short:   "List, replay, discard, redact or purge events that could not be delivered",
		Long: `Dead letters are events that were given up: refused for good by the broker, refused too often, or
bound for a destination that refused for longer than retry.destination_max_age. They stay until
somebody decides. These commands read the database and write down what is asked for; the relay
that leads carries it out. They work while no relay runs, and say so.`,
		RunE: needsSubcommand,
	}
	cmd.AddCommand(
		newList(g, dlq.Letters, `  cdc-relay deadletters list
  cdc-relay deadletters list --class permanent --error too_large --from 24h
  cdc-relay dlq list --key customer-17 --state open --json | jq -r '.items[].n'`),
		newShow(g, dlq.Letters, `  cdc-relay deadletters show 1042
  cdc-relay deadletters show 1042 --json | jq -r .payload.text`),
		newAct(g, act{
			kind: dlq.Replay, of: dlq.Letters, done: "replayed",
			short: "Publish dead letters again",
			long: `Publishes dead letters again, with the header cdc_replay, before the events of their key that wait
behind them. What the broker refuses again stays open, with its answer.`,
			example: `  cdc-relay deadletters replay 1042 --reason "limit raised"
  cdc-relay deadletters replay 1042 --exchange orders.retry
  cdc-relay deadletters replay --all --error too_large --rate 50/s --dry-run`,
		}),
		newAct(g, act{
			kind: dlq.Discard, of: dlq.Letters, done: "discarded",
			short: "Close dead letters unpublished",
			long: `Closes dead letters: they are not published any more. They stay listed until they are purged,
after dead_letters.keep.`,
			example: `  cdc-relay deadletters discard 1042 --reason "sent by hand"
  cdc-relay deadletters discard --all --type order.ping --to 2026-11-20`,
		}),
		newAct(g, act{
			kind: dlq.Redact, of: dlq.Letters, done: "redacted",
			short: "Remove the contents of dead letters",
			long: `Removes payload, headers and extra columns; id, key and history stay. A redacted dead letter
cannot be replayed any more, only discarded or purged.`,
			example: `  cdc-relay deadletters redact 1042 --reason "GDPR request 7"
  cdc-relay deadletters redact --all --key customer-17`,
		}),
		newAct(g, act{
			kind: dlq.Purge, of: dlq.Letters, done: "purged",
			short: "Remove dead letters, or all of one key, for good",
			long: `Removes all of a dead letter: what was not published is then lost. --all purges those that were
replayed or discarded, and with --state open the open ones. --key removes a person's data: what
there is of a key in both tables, dead letters of any state and parked rows. Of a purged row its
bare position stays until the slot cannot send the event again.`,
			example: `  cdc-relay deadletters purge 1042
  cdc-relay deadletters purge --all --to 720h
  cdc-relay deadletters purge --key customer-17 --reason "GDPR request 7"`,
		}),
		newRequest(g),
		newJob(g),
	)
	return cmd
}

// newParked is what can be done about events that wait.
func newParked(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List, retry or give up events that wait in the retry table",
		Long: `Parked rows are events that could not be published when their turn came, and those of their key
behind them. They are sent as soon as their destination takes events again, or their backoff is
over: nothing has to be done about them.`,
		RunE: needsSubcommand,
	}
	cmd.AddCommand(
		newList(g, dlq.Parked, `  cdc-relay parked list
  cdc-relay parked list --destination outbox.events/order.created --json`),
		newShow(g, dlq.Parked, `  cdc-relay parked show 2017`),
		newAct(g, act{
			kind: dlq.Retry, of: dlq.Parked, done: "to be tried now",
			short: "Try parked rows now, whatever their backoff",
			long: `Ends the backoff of rows, as if its time had come. Rows without one go as soon as their
destination takes events again, and are not among those of --all.`,
			example: `  cdc-relay parked retry 2017
  cdc-relay parked retry --all --class transient`,
		}),
		newAct(g, act{
			kind: dlq.Bury, of: dlq.Parked, done: "now a dead letter",
			short: "Make dead letters of parked rows",
			long: `Gives rows up: they become dead letters. With dead_letters.on_dead_letter: continue the later
events of their key go on without them.`,
			example: `  cdc-relay parked deadletter 2017 --reason "consumer cannot read it"
  cdc-relay parked deadletter --all --destination legacy.events`,
		}),
	)
	return cmd
}

func newList(g *global, of dlq.Of, example string) *cobra.Command {
	var f filterFlags
	var cursor string
	var limit int
	var asJSON bool
	short := "List dead letters, the newest first"
	if of == dlq.Parked {
		short = "List parked rows, the newest first"
	}
	cmd := &cobra.Command{
		Use: "list", Short: short, Example: example, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.filter(cmd.Context(), nil); err != nil {
				return err
			}
			if limit < 1 || limit > dlq.MaxLimit {
				return explained(&dlq.BadInput{Name: "limit", What: fmt.Sprintf("is %d, want 1 to %d", limit, dlq.MaxLimit)})
			}
			return g.atDesk(cmd.Context(), 0, func(ctx context.Context, d *desk) error {
				filter, err := f.filter(ctx, d)
				if err != nil {
					return err
				}
				page, err := d.List(ctx, of, filter, cursor, limit)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), page)
				}
				return printRows(cmd.OutOrStdout(), of, page)
			})
		},
	}
	f.add(cmd, of)
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("rows at most, up to %d", dlq.MaxLimit))
	cmd.Flags().StringVar(&cursor, "cursor", "", "where the list before ended, as it said")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newShow(g *global, of dlq.Of, example string) *cobra.Command {
	var asJSON bool
	short := "Show a dead letter, its contents and its history"
	if of == dlq.Parked {
		short = "Show a parked row and its contents"
	}
	cmd := &cobra.Command{
		Use: "show NUMBER", Short: short, Example: example, Args: oneArg(1, "the number of one row", "17"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, err := numbers("a row", commandOf(of)+" list", args)
			if err != nil {
				return err
			}
			return g.atDesk(cmd.Context(), 0, func(ctx context.Context, d *desk) error {
				detail, err := d.Show(ctx, of, ns[0], d.cfg.Admin.ShowPayloads)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), detail)
				}
				return printDetail(cmd.OutOrStdout(), detail)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
