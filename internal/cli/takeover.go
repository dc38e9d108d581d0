// The command takeover.

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/takeover"
)

func newTakeover(g *command.Options) *cobra.Command {
	var opt takeover.Options
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "takeover --from-slot NAME",
		Short: "Continue where another program's slot ends, without a gap",
		Long: `Creates the publication and the relay's own slot (source.slot) while the other program goes on with
its slot. It waits until that slot has confirmed everything that was committed before the relay's
slot began, and then until you stop the program. The relay's slot then continues exactly where the
other slot ended. Only what the program had published and not yet confirmed arrives twice.

The command prints what it waits for. You can interrupt it at any point; started again, it
continues. Until it is complete, "run" refuses the slot, and both slots keep WAL. Do not drop or
create the other slot again before the end. "cdc-relay teardown --yes" gives the takeover up.

The other slot may be of any plugin: pgoutput, decoderbufs, wal2json. A missing publication is
created even with source.create: false.`,
		Example: `  cdc-relay takeover --from-slot debezium
  cdc-relay takeover --from-slot debezium --drop --yes
  cdc-relay takeover --from-slot debezium --wait 0 --json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opt.From == "" {
				return &event.Stop{
					Code: event.ExitUsage, Reason: "usage",
					What: "--from-slot is missing", Fix: "SELECT slot_name, plugin, active FROM pg_replication_slots",
				}
			}
			if opt.Drop && !yes {
				return &event.Stop{
					Code: event.ExitUsage, Reason: "usage",
					What: "--drop drops slot " + opt.From, Err: errors.New("its program cannot continue with it"), Fix: "add --yes to do it",
				}
			}
			_, rc, _, err := g.Source()
			if err != nil {
				return err
			}
			if !asJSON {
				opt.Tell = func(s takeover.State) { printTakeover(cmd.OutOrStdout(), s) }
			}
			if !cmd.Flags().Changed("wait") {
				opt.Wait = -1
			}
			state, err := takeover.Run(cmd.Context(), rc, opt)
			if asJSON {
				err = errors.Join(err, output.JSON(cmd.OutOrStdout(), newTakeoverView(state)))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&opt.From, "from-slot", "", "`NAME` of the other program's slot")
	cmd.Flags().BoolVar(&opt.Drop, "drop", false, "drop that slot at the end; needs --yes")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm --drop: the other program cannot continue without its slot")
	cmd.Flags().DurationVar(&opt.Wait, "wait", 0, "wait at most this long; 0: only show the state (default: no limit)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON at the end")
	err := cmd.RegisterFlagCompletionFunc("from-slot", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return otherSlots(cmd.Context(), g), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // a flag that is not there
	}
	return cmd
}

// otherSlots are the shell completions of --from-slot; none when the database does not answer at
// once.
func otherSlots(ctx context.Context, g *command.Options) []string {
	_, rc, _, err := g.Source()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	names, err := takeover.OtherSlots(ctx, rc)
	if err != nil {
		return nil
	}
	return names
}

// takeoverView is a state for programs.
type takeoverView struct {
	takeover.State
	Start     string `json:"start_lsn,omitempty"`
	Confirmed string `json:"from_slot_confirmed_flush_lsn,omitempty"`
}

func newTakeoverView(s takeover.State) takeoverView {
	v := takeoverView{State: s}
	if s.Start != 0 {
		v.Start = s.Start.String()
	}
	if s.Confirmed != 0 {
		v.Confirmed = s.Confirmed.String()
	}
	return v
}

// printTakeover is a line for people at each step.
func printTakeover(w io.Writer, s takeover.State) {
	var what string
	switch {
	case s.Dropped:
		what = fmt.Sprintf("slot %s is dropped", s.From)
	case s.Complete:
		what = fmt.Sprintf("complete: slot %s continues from %s, where slot %s ended. Start the relay", s.Slot, s.Confirmed, s.From)
	case s.Passed:
		what = fmt.Sprintf("slot %s has passed the start of slot %s (%s). Now stop %s: once it has released its slot, the relay's slot continues from there", s.From, s.Slot, s.Start, s.Holder)
	case s.Active:
		what = fmt.Sprintf("slot %s (%s) is at %s, slot %s begins at %s. Waiting for %s to confirm an event that was committed after that", s.From, s.Plugin, s.Confirmed, s.Slot, s.Start, s.Holder)
	default:
		what = fmt.Sprintf("slot %s (%s) is at %s and nobody reads it; slot %s begins at %s. Start its program: only its slot has what was committed in between", s.From, s.Plugin, s.Confirmed, s.Slot, s.Start)
	}
	// a reader that has gone is no reason to stop
	_, _ = fmt.Fprintln(w, output.ForTerminal(w, output.Clean(what), 0))
}
