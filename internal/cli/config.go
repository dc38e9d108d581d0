// The commands config validate, config print and config schema.

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
)

// newConfig is `config validate`, `config print` and `config schema`.
func newConfig(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or show the configuration, without any connection",
		RunE:  command.NeedsSubcommand,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "validate",
			Short: "Report every error in the file and the CDC_RELAY_ variables",
			Example: `  cdc-relay config validate
  cdc-relay config validate -c /etc/cdc-relay.yaml`,
			Args: command.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if _, err := g.Load(); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
				return err
			},
		},
		&cobra.Command{
			Use:   "print",
			Short: "Print the configuration in effect, without secrets, and where each value is from",
			Example: `  cdc-relay config print
  CDC_RELAY_DELIVERY__MAX_IN_FLIGHT=50000 cdc-relay config print -c cdc-relay.yaml`,
			Args: command.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := g.Load()
				if err != nil {
					return err
				}
				return c.Print(cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use:   "schema",
			Short: "Print a JSON Schema of the configuration file, for editors",
			Long: `Prints a JSON Schema (draft 2020-12) of the configuration file: every key with its values, its
default and its meaning. With it, an editor completes keys and marks errors while you type.`,
			Example: `  cdc-relay config schema > cdc-relay.schema.json
  # first line of cdc-relay.yaml: # yaml-language-server: $schema=cdc-relay.schema.json`,
			Args: command.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return config.Schema(cmd.OutOrStdout()) },
		},
	)
	return cmd
}
