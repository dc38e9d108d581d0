package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

const (
	defaultConfigFile = "cdc-relay.yaml"
	configVariable    = "CDC_RELAY_CONFIG"
)

// global is what the commands share.
type global struct {
	configPath string // of -c; "" when it was not given
	started    bool   // the command line was understood and its command began
}

// newRoot is the whole command line.
func newRoot() (*cobra.Command, *global) {
	g := &global{}
	var showVersion bool
	root := &cobra.Command{
		Use:   "cdc-relay",
		Short: "Relay committed outbox rows from PostgreSQL to a message broker",
		Long: `cdc-relay reads from PostgreSQL's WAL the rows that committed transactions insert into an outbox
table. It publishes each to the broker. The replication slot moves only after the broker has
confirmed: every event arrives at least once, in order per key.`,
		Example: `  cdc-relay init --outbox-table
  cdc-relay check
  cdc-relay run -c cdc-relay.yaml
  cdc-relay status`,
		SilenceUsage:     true,
		SilenceErrors:    true,
		PersistentPreRun: func(*cobra.Command, []string) { g.started = true },
		Args:             cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknownCommand(cmd, args[0])
			case showVersion:
				_, err := fmt.Fprintln(cmd.OutOrStdout(), thisBuild())
				return err
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(flagFault)
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	root.PersistentFlags().StringVarP(&g.configPath, "config", "c", "",
		"configuration file (default $"+configVariable+", then ./"+defaultConfigFile+")")
	// No command takes a file but by -c; what a shell offers by itself are files.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if err := root.MarkPersistentFlagFilename("config", "yaml", "yml"); err != nil {
		panic(err) // a flag that is not there
	}
	root.AddCommand(newRun(g), newInit(g), newStatus(g), newHealth(g), newCheck(g), newEvents(g), newDeadLetters(g), newParked(g), newTakeover(g), newTeardown(g), newImport(), newCompare(g), newConfig(g), newVersion())
	return root, g
}

// load reads the configuration of -c, else of $CDC_RELAY_CONFIG, else ./cdc-relay.yaml, which alone may be missing: then
// the environment has to say everything.
func (g *global) load() (*config.Config, error) { return config.Load(g.path(), os.Environ()) }

// path is that file; "" when there is none.
func (g *global) path() string {
	path := cmp.Or(g.configPath, os.Getenv(configVariable))
	if path == "" {
		path = defaultConfigFile
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			path = ""
		}
	}
	return path
}
