// Package status is the command status: what a relay is doing, once or with --watch again and
// again.
package status

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/client"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// New is the command status.
func New(g *command.Options) *cobra.Command {
	var admin string
	var asJSON, watching bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the relay is doing",
		Long: `Asks the running relay: at admin.socket, which needs no token, or else at admin.listen with a token
of admin.tokens. If the relay does not answer, or wants another token, status shows what the
database knows, and exits 0 if the slot is active, else 1.

With --watch it repeats this until interrupted, then exits 0. On a terminal it redraws the screen.
Elsewhere it prints one line each time, or one JSON object with --json. It keeps watching while the
relay is away.`,
		Example: `  cdc-relay status
  cdc-relay status --watch
  cdc-relay status --watch --every 10s >> status.log
  cdc-relay status --admin unix:/run/cdc-relay/admin.sock
  cdc-relay status --admin https://10.0.0.7:8464 --json | jq .slot.lag_bytes`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.Load()
			if err != nil {
				return err
			}
			switch {
			case watching && every < shortestEvery:
				return command.UsageError(fmt.Sprintf("--every is %s, want at least %s", every, shortestEvery))
			case watching:
				return runWatch(cmd.Context(), cmd.OutOrStdout(), c, g, admin, every, asJSON)
			case cmd.Flags().Changed("every"):
				return command.UsageError("--every has no effect without --watch")
			}
			status, err := client.Status(cmd.Context(), c, admin)
			if err == nil {
				return showStatus(cmd.OutOrStdout(), status, asJSON)
			}
			var answered *client.AnswerError
			if errors.As(err, &answered) {
				return err
			}
			return showDatabase(cmd.Context(), cmd.OutOrStdout(), c, g, asJSON, err)
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "", "`ADDRESS` of the relay: host:port, https://host:port or unix:/path\n(default admin.socket, then admin.listen)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watching, "watch", "w", false, "repeat until interrupted")
	cmd.Flags().DurationVar(&every, "every", time.Second, "with --watch: the time between two polls")
	return cmd
}

const shortestEvery = 100 * time.Millisecond

func showStatus(w io.Writer, s *ops.Status, asJSON bool) error {
	if asJSON {
		return output.JSON(w, s)
	}
	return writeStatus(w, s, output.HasColor(w))
}
