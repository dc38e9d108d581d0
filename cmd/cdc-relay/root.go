package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
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
	root := &cobra.Command{
		Use:   "cdc-relay",
		Short: "Relay committed outbox rows from PostgreSQL to a message broker",
		Long: `cdc-relay reads the rows that committed transactions insert into an outbox table from PostgreSQL's WAL, publishes each
to the broker, and lets the replication slot move only after the broker has confirmed it: at least once, in order per key.`,
		Example: `  cdc-relay init --outbox-table
  cdc-relay check
  cdc-relay run -c cdc-relay.yaml
  cdc-relay status`,
		SilenceUsage:     true,
		SilenceErrors:    true,
		PersistentPreRun: func(*cobra.Command, []string) { g.started = true },
	}
	root.PersistentFlags().StringVarP(&g.configPath, "config", "c", "",
		"configuration file (default $"+configVariable+", then ./"+defaultConfigFile+")")
	// No command takes a file but by -c; what a shell offers by itself are files.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if err := root.MarkPersistentFlagFilename("config", "yaml", "yml"); err != nil {
		panic(err) // a flag that is not there
	}
	root.AddCommand(newRun(g), newInit(g), newStatus(g), newHealth(g), newCheck(g), newEvents(g), newDeadLetters(g), newParked(g), newTeardown(g), newTakeover(g), newImport(), newConfig(g), newVersion())
	return root, g
}

// load reads the configuration of -c, else of $CDC_RELAY_CONFIG, else ./cdc-relay.yaml, which alone may be missing: then
// the environment has to say everything.
func (g *global) load() (*config.Config, error) {
	path := g.configPath
	if path == "" {
		path = os.Getenv(configVariable)
	}
	if path == "" {
		path = defaultConfigFile
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			path = ""
		}
	}
	return config.Load(path, os.Environ())
}

// needsSubcommand is the RunE of a command that only groups others: cobra would print its help and exit 0 on a misspelt
// one.
func needsSubcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	what := cmd.CommandPath() + " wants one of " + strings.Join(names, ", ")
	if len(args) > 0 {
		what += ", not " + args[0]
	}
	return &outbox.Stop{Code: outbox.ExitUsage, Reason: "usage", What: what}
}
