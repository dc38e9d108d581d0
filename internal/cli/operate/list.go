// The commands dead-letters list and deferred list.

package operate

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

func newList(g *command.Options, of *dlq.Table, example string) *cobra.Command {
	var f filterFlags
	var cursor string
	var limit int
	var asJSON bool
	short := "List dead letters, newest first"
	if of == dlq.Deferred {
		short = "List deferred events, newest first"
	}
	cmd := &cobra.Command{
		Use: "list", Short: short, Example: example, Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.filter(cmd.Context(), nil); err != nil {
				return err
			}
			if limit < 1 || limit > dlq.MaxLimit {
				return withExitCode(&dlq.BadInput{Name: "limit", What: fmt.Sprintf("is %d, want 1 to %d", limit, dlq.MaxLimit)})
			}
			return withAdminClient(cmd.Context(), g, 0, func(ctx context.Context, d *adminClient) error {
				filter, err := f.filter(ctx, d)
				if err != nil {
					return err
				}
				page, err := d.List(ctx, of, filter, cursor, limit)
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(cmd.OutOrStdout(), page)
				}
				return printRows(cmd.OutOrStdout(), of, page)
			})
		},
	}
	f.add(cmd, of)
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("at most this many rows, up to %d", dlq.MaxLimit))
	cmd.Flags().StringVar(&cursor, "cursor", "", "continue after a list that ended with this `CURSOR`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// shortText shows a text of an event, which may contain anything; "-" for NULL.
func shortText(s *string) string {
	switch {
	case s == nil:
		return "-"
	case *s == "":
		return `""`
	}
	return output.Clean(*s)
}

// maxListText is how much of a text is shown in a list even when it is piped.
const maxListText = 200

func printRows(w io.Writer, of *dlq.Table, page dlq.Page) error {
	if len(page.Rows) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	g := output.Table{MaxWidths: []int{0, 0, 0, 36, 16, 24, 24, 32, 0, 0, 60}}
	when := "DIED (UTC)"
	if of == dlq.Deferred {
		when = "DEFERRED (UTC)"
	}
	g.Header = []string{"NUMBER", when, "STATE", "ID", "AGGREGATE", "KEY", "TYPE", "DESTINATION", "REASON", "ATTEMPTS", "ERROR"}
	for i := range page.Rows {
		r := &page.Rows[i]
		at := r.DeferredAt
		state := r.State
		if r.DiedAt != nil {
			at = *r.DiedAt
		}
		if r.NextAttempt != nil {
			state = "next " + r.NextAttempt.Format(time.TimeOnly)
		}
		row := []string{
			fmt.Sprint(r.N), at.Format(time.DateTime), state, shortText(r.ID), shortText(r.Aggregate), shortText(r.Key), shortText(r.Type),
			output.Clean(r.Destination), orDash(r.Reason), fmt.Sprint(r.Attempts), output.Clean(r.Error),
		}
		for c := range row {
			row[c] = output.Cut(row[c], maxListText, "…")
		}
		g.Rows = append(g.Rows, row)
	}
	if err := g.Write(w); err != nil || page.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "more: --cursor %s\n", output.Clean(page.Next))
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return output.Clean(s)
}

func printJobs(w io.Writer, jobs []dlq.Job) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	g := output.Table{Header: []string{"JOB", "AT (UTC)", "KIND", "STATE", "MATCHED", "DONE", "FAILED", "SKIPPED", "WHO", "WHY"}, MaxWidths: []int{0, 0, 0, 0, 0, 0, 0, 0, 30, 40}}
	for _, j := range jobs {
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(j.ID), j.At.Format(time.DateTime), commandName(j.Kind), j.State, output.Thousands(uint64(j.Matched)), output.Thousands(uint64(j.Done)),
			output.Thousands(uint64(j.Failed)), output.Thousands(uint64(j.Skipped)), output.Clean(j.Who), output.Clean(j.Why),
		})
	}
	return g.Write(w)
}
