// The command health.

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/client"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// newHealth is the command health: a probe for images that have no shell and no curl.
func newHealth(g *command.Options) *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the running relay whether it is healthy, and exit 0 or 1",
		Long: `Asks /healthz of the running relay, without a token: the health check of a container. It exits 0
while the relay runs or waits for its servers, and 1 with the reason if one of its loops is stuck or
nothing answers. "status" shows what the relay is doing.`,
		Example: `  cdc-relay health
  cdc-relay health --admin 127.0.0.1:9464`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.Load()
			if err != nil && admin == "" {
				return err
			}
			if why := client.Health(cmd.Context(), c, admin); why != "" {
				return &event.Stop{Code: event.ExitFailure, Reason: "unhealthy", What: why}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "healthy")
			return err
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "", "`ADDRESS` of the relay: host:port, https://host:port or unix:/path\n(default admin.socket, then admin.listen)")
	return cmd
}
