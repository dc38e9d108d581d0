// The command accept: an operator decides to go on after a finding that has stopped the relay.

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// newAccept makes the command accept.
func newAccept(g *command.Options) *cobra.Command {
	var opt setup.AcceptOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "accept ID",
		Short: "Go on after exit 3: accept a finding",
		Long: `If the slot, the publication or the server is not what it was, the relay stops with exit 3: rows may
be missing, and only you can decide to go on without them. The message of the exit, "check",
"status" and /readyz name the finding by an ID, say which rows may be missing, and print this
command.

The ID is a digest of the finding. It is refused if something has changed since, and it is accepted
once. The audit records who accepted it, and why. The interval that may be missing is kept for
"cdc-relay recover". The relay goes on at its next start; with "run --hold-on-fatal" it goes on by
itself. Run the command with the relay's configuration: it needs the rights of the relay's role.

On another system (pg_upgrade, a restored dump) --same-data needs a word on what was committed on
the one before. "--delivered all": it was delivered, but for deferred events and dead letters. No
gap is kept, and recover leaves out the rows that came along. "--delivered unknown": recover sends
every row that is not known to be sent.`,
		Example: `  cdc-relay accept 3f9a1c2b7d04 --reason "restored from the nightly backup"
  cdc-relay accept 3f9a1c2b7d04 --new-slot
  cdc-relay accept 3f9a1c2b7d04 --same-data --delivered all
  cdc-relay accept 3f9a1c2b7d04 --skip-rows public.audit@16423`,
		Args: command.OneArg(1, "the ID of one finding", "3f9a1c2b7d04"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opt.ID = args[0]
			if err := opt.Validate(); err != nil {
				return err
			}
			_, rc, _, err := g.Source()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			// delivered "all" reads the outbox tables, which takes as long as they are large
			if opt.Delivered != setup.DeliveredAll {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, acceptTimeout)
				defer cancel()
			}
			done, err := setup.Accept(ctx, rc, opt)
			switch {
			case err != nil:
				return err
			case asJSON:
				return command.JSON(cmd.OutOrStdout(), done)
			}
			return printAccepted(cmd, done)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opt.Reason, "reason", "", "`REASON` for the audit record")
	flags.BoolVar(&opt.NewSlot, "new-slot", false, "drop the slot, with what waits in it, and create a new one")
	flags.BoolVar(&opt.SameData, "same-data", false, "this server goes on with the data of the other one: what is\ndeferred is sent")
	flags.BoolVar(&opt.Copy, "copy", false, "this server is a copy, and the other one goes on: what is\ndeferred is not sent here")
	flags.StringVar(&opt.Delivered, "delivered", "", "with --same-data on another system: `all` that was committed\nbefore the move was delivered, or \"unknown\"")
	flags.StringVar(&opt.Rows.Skip, "skip-rows", "", "rows of this table, `NAME@OID` as in the message, are not events")
	flags.StringVar(&opt.Rows.SkipMessages, "skip-messages", "", "messages with this `PREFIX` are not events")
	flags.StringVar(&opt.Rows.Events, "events", "", "rows of this table, `NAME@OID` as in the message, are events")
	flags.StringVar(&opt.Rows.Of, "of", "", "with --events: of which `TABLE` of source.tables they are events")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// acceptTimeout bounds the command except with --delivered all. Its statements take milliseconds.
const acceptTimeout = time.Minute

// printAccepted prints what was done, and the command that sends what may be missing.
func printAccepted(cmd *cobra.Command, done setup.AcceptResult) error {
	moved := ""
	if done.Moved > 0 {
		moved = fmt.Sprintf("; %d deferred events and dead letters came along", done.Moved)
	}
	if done.Recorded > 0 {
		moved += fmt.Sprintf("; recover leaves out %d rows of the outbox tables", done.Recorded)
	}
	next := ""
	if done.Next != "" {
		next = fmt.Sprintf("gap %d: rows of it may never have been sent; once the relay was started, this sends them: %s\n", done.Gap, command.Clean(done.Next))
	}
	_, err := fmt.Fprintf(printable.Text(cmd.OutOrStdout()), "accepted %s: %s%s\n%s", done.Finding, command.Clean(done.Done), moved, next)
	return err
}
