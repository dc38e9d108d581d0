// The command dead-letters job.

package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// newJob is the command job. It shows bulk requests of both tables.
func newJob(g *command.Options) *cobra.Command {
	var cancel, asJSON bool
	var wait time.Duration
	var reason string
	cmd := &cobra.Command{
		Use:   "job [NUMBER]",
		Short: "Show, cancel or list bulk requests",
		Long: `Shows the progress of a bulk request: an action with --all, or "purge --key", on dead letters or
deferred events. Without a number it lists the newest. Cancelling a job keeps the work already done.`,
		Example: `  cdc-relay dead-letters job
  cdc-relay dead-letters job 12 --wait 5m
  cdc-relay dead-letters job 12 --cancel`,
		Args: command.OneArg(0, "the number of one job, or none", "12"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, err := numbers("a job", "cdc-relay dead-letters job", args)
			if err != nil {
				return err
			}
			if len(ns) == 0 && (cancel || wait != 0) {
				return command.UsageError("no job named: `cdc-relay dead-letters job` lists them")
			}
			if wait < 0 {
				return command.UsageError(fmt.Sprintf("--wait is %s, want a time such as 30s, or 0", wait))
			}
			return withAdminClient(cmd.Context(), g, wait, func(ctx context.Context, d *adminClient) error {
				if len(ns) == 0 {
					jobs, err := d.Jobs(ctx, 20)
					if err != nil {
						return err
					}
					if asJSON {
						return output.JSON(cmd.OutOrStdout(), map[string]any{"items": append([]dlq.Job{}, jobs...)})
					}
					return printJobs(cmd.OutOrStdout(), jobs)
				}
				out := &result{out: printable.Text(cmd.OutOrStdout()), line: output.Progress{W: cmd.ErrOrStderr()}, json: asJSON}
				j, err := d.Job(ctx, ns[0])
				if err != nil {
					return err
				}
				if cancel && j.State == dlq.JobRuns {
					if j, err = d.Cancel(ctx, ns[0], dlq.Requester{Why: reason}); err != nil {
						return err
					}
				}
				if cancel && j.State == dlq.JobDone && !asJSON {
					fmt.Fprintln(out.out, "nothing to cancel: already ended")
				}
				runs := true
				if j.State == dlq.JobRuns {
					if j, runs, err = d.waitForJob(ctx, j, wait, wait > 0, out.progress); err != nil {
						return err
					}
				}
				out.kind = j.Kind
				return out.reportJob(j, runs)
			})
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the job")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait at most this long for its end")
	cmd.Flags().StringVar(&reason, "reason", "", "`REASON` for the audit record")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
