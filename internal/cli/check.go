// The command check.

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/check"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

func newCheck(g *command.Options) *cobra.Command {
	var asJSON bool
	var message testMessage
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check everything that the relay needs, and change nothing",
		Long: `Checks everything that the relay needs of PostgreSQL and the broker. Each line is ok, warn or fail,
with the fix to copy. Exits 1 if a line is fail.

With --publish it also sends one test message, the way events are sent, and waits for the broker's
confirm. With sink.rabbitmq.declare it declares the exchange first, as run does. Consumers see the
message: its id begins with "cdc-relay-check-", its header cdc_check is true, and its payload is
{"cdc_check": true}. With sink.compat it has only the headers of that profile. If a template needs
values, give them with --aggregate, --key, --type and --column.`,
		Example: `  cdc-relay check
  cdc-relay check --json | jq -r '.[] | select(.level == "fail") | .fix'
  cdc-relay check --publish --aggregate order --type created`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, rc, log, err := g.Source()
			if err != nil {
				return err
			}
			if err := message.validate(c); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wiring.CheckTimeout)
			defer cancel()
			findings, err := wiring.Check(ctx, c, rc, log)
			if err != nil {
				return err
			}
			if message.publish {
				findings = append(findings, message.sendTo(cmd.Context(), c, findings))
			}
			if asJSON {
				err = output.JSON(cmd.OutOrStdout(), findings)
			} else {
				err = printFindings(cmd.OutOrStdout(), findings)
			}
			if err != nil {
				return err
			}
			return failed(findings)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	message.declare(cmd)
	return cmd
}

func printFindings(w io.Writer, findings []check.Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Name))
	}
	var out strings.Builder
	for _, f := range findings {
		line := fmt.Sprintf("%-4s  %-*s  %s", f.Level, width, f.Name, f.Detail)
		fmt.Fprintln(&out, output.ForTerminal(w, output.CleanLines(line), width+10))
		if f.Fix != "" {
			line := fmt.Sprintf("      %-*s  fix: %s", width, "", f.Fix)
			fmt.Fprintln(&out, output.ForTerminal(w, output.CleanLines(line), 0))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func failed(findings []check.Finding) error {
	n := 0
	for _, f := range findings {
		if f.Level == check.LevelFail {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &event.Stop{Code: event.ExitFailure, Reason: "check", What: fmt.Sprintf("%d of %d checks failed", n, len(findings))}
}
