// Package cli is the command line of cdc-relay: one file or folder per command. Only `run` is
// elsewhere, in cmd/cdc-relay, because it wires the relay.
package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/compare"
	"github.com/cdc-relay/cdc-relay/internal/cli/operate"
	"github.com/cdc-relay/cdc-relay/internal/cli/status"
)

// NewRoot is the whole command line. run creates the command run, which is wired outside of this
// package.
func NewRoot(version string, run func(*command.Options) *cobra.Command) (*cobra.Command, *command.Options) {
	g := &command.Options{Build: command.ThisBuild(version)}
	var showVersion bool
	root := &cobra.Command{
		Use:   "cdc-relay",
		Short: "Relay committed outbox rows from PostgreSQL to a message broker",
		Long: `cdc-relay reads the rows that committed transactions insert into an outbox table, from PostgreSQL's
WAL, and publishes each of them to a message broker. Its replication slot advances only after the
broker has confirmed. Every event arrives at least once, and the events of a key arrive in order.

Exit codes: 0 done, 1 runtime failure, 2 usage or configuration, 3 an operator must decide,
4 the table does not fit, 5 the stop was cut. See docs/reference.md#exit-codes.`,
		Example: `  cdc-relay init --outbox-table
  cdc-relay check
  cdc-relay run -c cdc-relay.yaml
  cdc-relay status`,
		SilenceUsage:     true,
		SilenceErrors:    true,
		PersistentPreRun: func(*cobra.Command, []string) { g.Started = true },
		Args:             cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return command.UnknownCommand(cmd, args[0])
			case showVersion:
				_, err := fmt.Fprintln(cmd.OutOrStdout(), g.Build)
				return err
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(command.FlagError)
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	root.PersistentFlags().StringVarP(&g.ConfigPath, "config", "c", "",
		"configuration `FILE` (default $"+command.ConfigVariable+", then ./"+command.DefaultConfigFile+")")
	// Commands take a file only with -c. Without this, shells complete file names.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if err := root.MarkPersistentFlagFilename("config", "yaml", "yml"); err != nil {
		panic(err) // a flag that is not there
	}
	root.AddCommand(run(g), newInit(g), status.New(g), newHealth(g), newCheck(g), operate.NewEvents(g), operate.NewDeadLetters(g), operate.NewDeferred(g), operate.NewResend(g), newAccept(g), newTakeover(g), newRecover(g), newTeardown(g), newImport(), compare.New(g), newConfig(g), newVersion(g))
	return root, g
}
