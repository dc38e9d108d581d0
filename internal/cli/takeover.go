// The command takeover: the relay continues where another program's slot ends.

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// newTakeover makes the command takeover.
func newTakeover(g *command.Options) *cobra.Command {
	var from string
	var drop, yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "takeover --from-slot NAME",
		Short: "Continue where another program's slot ends, without a gap",
		Long: `Creates the publication while the other program goes on with its slot, and says which position
that slot must pass. Once it has, and you have stopped the program, the same command makes the
relay's own slot (source.slot): a copy of the other one, which continues exactly where that ended.
Only what the program had published and not yet confirmed arrives twice.

The command does what can be done now. If something is missing it says what, and exits with 3: run
it again then. It may be interrupted at any point. Until it is complete, "run" refuses the slot. Do
not drop or create the other slot again before that. "cdc-relay teardown --yes" gives the takeover
up.

The other slot may be of any plugin: pgoutput, decoderbufs, wal2json. A missing publication is
created even with source.create: false.`,
		Example: `  cdc-relay takeover --from-slot debezium
  cdc-relay takeover --from-slot debezium --drop --yes
  cdc-relay takeover --from-slot debezium --json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case from == "":
				return command.UsageError("--from-slot is missing: SELECT slot_name, plugin, active FROM pg_replication_slots")
			case drop && !yes:
				return command.UsageError("--drop drops slot " + from + ", and its program cannot continue with it: add --yes to do it")
			}
			_, rc, _, err := g.Source()
			if err != nil {
				return err
			}
			state, err := setup.TakeOver(cmd.Context(), rc, from, drop)
			switch {
			case asJSON:
				err = errors.Join(err, command.JSON(cmd.OutOrStdout(), state))
			case state.Complete:
				printTakeover(cmd.OutOrStdout(), state)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&from, "from-slot", "", "`NAME` of the other program's slot")
	cmd.Flags().BoolVar(&drop, "drop", false, "drop that slot at the end; needs --yes")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm --drop: the other program cannot continue without its slot")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON at the end")
	return cmd
}

// printTakeover prints for people that the takeover is complete.
func printTakeover(w io.Writer, s setup.TakeoverState) {
	what := fmt.Sprintf("complete: slot %s continues from %s, where slot %s ended. Start the relay", s.Slot, s.Confirmed, s.From)
	what += command.If(s.Dropped, ". Slot "+s.From+" is dropped")
	// a reader of the output that has gone is no reason to stop
	_, _ = fmt.Fprintln(w, command.ForTerminal(w, command.Clean(what), 0))
}
