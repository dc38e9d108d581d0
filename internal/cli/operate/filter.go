// The flags that select rows.

package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// filterFlags are the flags that select rows.
type filterFlags struct {
	table                          dlq.Of
	id, key, aggregate, typ        string
	keyOf                          int64
	destination, class, err, state string
	from, to                       string
	given                          func(flag string) bool
}

// filterFlagNames are all of them. None of them goes together with row numbers.
var filterFlagNames = []string{"id", "key", "key-of", "aggregate", "type", "destination", "class", "error", "state", "from", "to"}

func (f *filterFlags) add(cmd *cobra.Command, of dlq.Of) {
	f.table = of
	flags := cmd.Flags()
	at := "dead"
	if of == dlq.Deferred {
		at = "deferred"
	}
	const times = "2026-11-20 (UTC), 2026-11-20T15:04:05Z, or 90m or 7d ago"
	flags.StringVar(&f.id, "id", "", "id of the event")
	flags.StringVar(&f.key, "key", "", "key of the event")
	flags.Int64Var(&f.keyOf, "key-of", 0, "number of a row: all rows with the same aggregate and key")
	flags.StringVar(&f.aggregate, "aggregate", "", "aggregate of the event")
	flags.StringVar(&f.typ, "type", "", "type of the event")
	flags.StringVar(&f.destination, "destination", "", "exchange or topic, or EXCHANGE/ROUTING-KEY, as the list shows it")
	flags.StringVar(&f.class, "class", "", "class of the last error: "+strings.Join(dlq.Classes, ", "))
	flags.StringVar(&f.err, "error", "", "reason of the last error, or part of its text")
	if of != dlq.Deferred {
		flags.StringVar(&f.state, "state", "", "state: "+strings.Join(dlq.States, ", "))
		complete(cmd, "state", dlq.States)
	}
	flags.StringVar(&f.from, "from", "", at+" since "+times)
	flags.StringVar(&f.to, "to", "", at+" before a time, written as for --from")
	complete(cmd, "class", dlq.Classes)
	f.given = flags.Changed
}

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
	out := dlq.Filter{Destination: f.destination, Class: f.class, Error: f.err, State: f.state}
	for _, text := range []struct {
		flag  string
		value *string
		into  **string
	}{{"id", &f.id, &out.ID}, {"key", &f.key, &out.Key}, {"aggregate", &f.aggregate, &out.Aggregate}, {"type", &f.typ, &out.Type}} {
		if f.given(text.flag) {
			*text.into = text.value
		}
	}
	for _, text := range []struct{ flag, value string }{{"destination", f.destination}, {"class", f.class}, {"error", f.err}, {"state", f.state}} {
		if f.given(text.flag) && text.value == "" {
			return out, command.UsageError("--" + text.flag + " is empty; leave it out to match any")
		}
	}
	now := time.Now()
	for _, when := range []struct {
		flag, value string
		into        *time.Time
	}{{"from", f.from, &out.From}, {"to", f.to, &out.To}} {
		if !f.given(when.flag) {
			continue
		}
		t, err := command.ParseTime(when.value, now)
		if err != nil {
			return out, command.UsageError(fmt.Sprintf("--%s is %q: %v", when.flag, when.value, err))
		}
		*when.into = t
	}
	if err := out.Check(f.table); err != nil {
		return out, withExitCode(err)
	}
	if f.given("key-of") {
		if f.given("key") || f.given("aggregate") {
			return out, command.UsageError("--key-of excludes --key and --aggregate")
		}
		if d == nil {
			return out, nil
		}
		return out, d.SameKey(ctx, f.keyOf, &out)
	}
	return out, nil
}
