// The command version.

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
)

// newVersion is `version`.
func newVersion(g *command.Options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release",
		Example: `  cdc-relay version
  cdc-relay version --json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return output.JSONLine(cmd.OutOrStdout(), g.Build)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), g.Build)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
