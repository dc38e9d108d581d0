// The command dead-letters request.

package operate

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// newRequest is the command request. It shows requests about rows of both tables.
func newRequest(g *command.Options) *cobra.Command {
	var cancel, asJSON bool
	var reason string
	cmd := &cobra.Command{
		Use:   "request NUMBER",
		Short: "Show or cancel a request about one row",
		Long: `Shows a request about one dead letter or deferred event, by the number that the action printed. A
request waits until the leader carries it out. While it waits you can cancel it: the row stays as it
is.`,
		Example: `  cdc-relay dead-letters request 317
  cdc-relay dead-letters request 317 --cancel --reason "the wrong exchange"`,
		Args: command.OneArg(1, "the number of one request", "317"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, err := numbers("a request", "cdc-relay dead-letters show", args)
			if err != nil {
				return err
			}
			return withAdminClient(cmd.Context(), g, 0, func(ctx context.Context, d *adminClient) error {
				q, err := d.RequestByID(ctx, ns[0])
				if err != nil {
					return err
				}
				if cancel && q.State == dlq.RequestWaits {
					if q, err = d.Withdraw(ctx, ns[0], dlq.Requester{Why: reason}); err != nil {
						return err
					}
				}
				if asJSON {
					return output.JSON(cmd.OutOrStdout(), q)
				}
				if cancel && q.State != dlq.RequestCancelled {
					fmt.Fprintln(cmd.OutOrStdout(), "nothing to cancel: already ended")
				}
				return printRequest(cmd.OutOrStdout(), &q)
			})
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the request")
	cmd.Flags().StringVar(&reason, "reason", "", "`REASON` for the audit record")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printRequest(w io.Writer, q *dlq.Request) error {
	res := result{action: action{kind: q.Kind}}
	_, err := fmt.Fprintf(printable.Text(w), "%s of %s %d%s, requested by %s at %s%s: %s%s%s\n", commandName(q.Kind), res.noun(), q.N, routeText(q),
		output.Clean(q.Who), timeText(q.At), reasonText(q.Why), output.Clean(q.State), labelledTime(" ", q.DoneAt), output.If(q.Result != "", ", "+output.Clean(q.Result)))
	return err
}
