// Package cli is the command line of cdc-relay. Each command has a file or folder here, except
// `run`: it is in cmd/cdc-relay, where the relay is put together.
package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/compare"
	"github.com/cdc-relay/cdc-relay/internal/cli/operate"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// NewRoot makes the whole command line. run makes the command run, which is in another package.
func NewRoot(linked command.Linked, run func(*command.Options) *cobra.Command) (*cobra.Command, *command.Options) {
	g := &command.Options{Build: command.ThisBuild(linked)}
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
	// Commands take a file only with -c. Without this line, shells would complete file names
	// everywhere.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if err := root.MarkPersistentFlagFilename("config", "yaml", "yml"); err != nil {
		panic(err) // cannot happen: the flag exists
	}
	root.AddCommand(run(g), newInit(g), operate.NewStatus(g), newHealth(g), newCheck(g), operate.NewEvents(g), operate.NewDeadLetters(g), operate.NewDeferred(g), operate.NewResend(g), newAccept(g), newTakeover(g), newRecover(g), newTeardown(g), newImport(), compare.New(g), newConfig(g), newVersion(g))
	return root, g
}

// Execute runs one command line and returns its exit code. It prints an error on stderr, unless the
// error was logged already. run makes the command run.
func Execute(args []string, stdout, stderr io.Writer, linked command.Linked, run func(*command.Options) *cobra.Command) int {
	root, g := NewRoot(linked, run)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var done command.Logged
	if err != nil && !errors.As(err, &done) {
		fmt.Fprintln(stderr, command.Layout("cdc-relay: "+command.CleanLines(err.Error()), command.Width(stderr), 0))
	}
	return command.ExitCode(err, g.Started)
}

// newVersion makes the command version.
func newVersion(g *command.Options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit with its date, and the Go release",
		Example: `  cdc-relay version
  cdc-relay version --json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return command.JSONLine(cmd.OutOrStdout(), g.Build)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), g.Build)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newConfig makes the commands config validate, config print and config schema.
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

// newHealth makes the command health, for images that have no shell and no curl to probe with.
func newHealth(g *command.Options) *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the running relay whether it is healthy, and exit 0 or 1",
		Long: `Asks /healthz of the running relay, without a token: the health check of a container. It exits 0
while the relay runs or waits for its servers, and 1 with the reason if one of its loops is stuck or
nothing answers. It asks at admin.socket or, without one, at admin.metrics_listen and admin.listen.
"status" shows what the relay is doing.`,
		Example: `  cdc-relay health
  cdc-relay health --admin 127.0.0.1:8464`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.Load()
			if err != nil && admin == "" {
				return err
			}
			if why := command.Health(cmd.Context(), c, admin); why != "" {
				return &event.Stop{Code: event.ExitFailure, Reason: "unhealthy", What: why}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "healthy")
			return err
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "", "`ADDRESS` of the relay: host:port, https://host:port or unix:/path\n(default admin.socket, else admin.listen)")
	return cmd
}
