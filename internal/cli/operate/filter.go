// The flags that select rows.

package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// filterFlags are the flags that select rows.
type filterFlags struct {
	table *dlq.Table
	flags *pflag.FlagSet
}

// filterFlagNames are all of them. None of them goes together with row numbers.
var filterFlagNames = []string{"id", "key", "key-of", "aggregate", "type", "destination", "class", "error", "state", "from", "to"}

func (f *filterFlags) add(cmd *cobra.Command, of *dlq.Table) {
	f.table, f.flags = of, cmd.Flags()
	at := "dead"
	if of == dlq.Deferred {
		at = "deferred"
	}
	f.flags.String("id", "", "`ID` of the event")
	f.flags.String("key", "", "`KEY` of the event")
	f.flags.Int64("key-of", 0, "all rows with the aggregate and key of row `NUMBER`")
	f.flags.String("aggregate", "", "`AGGREGATE` of the event")
	f.flags.String("type", "", "`TYPE` of the event")
	f.flags.String("destination", "", "`NAME` of the exchange or topic, or EXCHANGE/ROUTING-KEY, as in the list")
	f.flags.String("class", "", "`CLASS` of the last error: "+strings.Join(dlq.Classes, ", "))
	f.flags.String("error", "", "`REASON` of the last error, or part of its text")
	if of != dlq.Deferred {
		f.flags.String("state", "", "`STATE` of the dead letter: "+strings.Join(dlq.States, ", "))
		complete(cmd, "state", dlq.States)
	}
	f.flags.String("from", "", at+" since `TIME` (UTC): 2026-11-20T15:04:05Z, 2026-11-20, 90m or 7d")
	f.flags.String("to", "", at+" before `TIME`, written as for --from")
	complete(cmd, "class", dlq.Classes)
}

func (f *filterFlags) given(flag string) bool { return f.flags.Changed(flag) }

// complete makes the shell offer the values of a flag.
func complete(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // a flag that is not there
	}
}

// firstGiven is the first flag of the filter that was given.
func (f *filterFlags) firstGiven() (string, bool) {
	for _, name := range filterFlagNames {
		if f.given(name) {
			return name, true
		}
	}
	return "", false
}

// filter reads the flags; d is asked only for --key-of.
func (f *filterFlags) filter(ctx context.Context, d *adminClient) (dlq.Filter, error) {
	var in dlq.FilterInput
	for _, flag := range filterFlagNames {
		if !f.given(flag) {
			continue
		}
		value := f.flags.Lookup(flag).Value.String()
		if flag == "from" || flag == "to" {
			at, err := command.ParseTime(value, time.Now())
			if err != nil {
				return dlq.Filter{}, command.UsageError(fmt.Sprintf("--%s is %q: %v", flag, value, err))
			}
			value = at.Format(time.RFC3339Nano)
		}
		if _, err := in.Set(strings.ReplaceAll(flag, "-", "_"), value); err != nil {
			return dlq.Filter{}, withExitCode(err)
		}
	}
	var admin *dlq.Admin
	if d != nil {
		admin = d.Admin
	}
	out, err := in.Filter(ctx, admin)
	if err == nil {
		err = out.Check(f.table)
	}
	return out, withExitCode(err)
}
