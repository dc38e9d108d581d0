// The actions of operators: replay, discard, redact and purge of dead letters, retry and
// dead-letter of deferred events. They share one implementation, because each stores a request for
// rows by their numbers or for all rows that a filter chooses.

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// action describes a command that requests something for rows. newAction makes the command of it.
type action struct {
	kind                 dlq.Kind
	of                   *dlq.Table
	done                 string // what a row is once the request is carried out, for output
	short, long, example string
}

// actionFlags are the flags and arguments of an action.
type actionFlags struct {
	action
	filterFlags
	routeFlags        // only of a replay
	rows              []int64
	all, dryRun, json bool
	named             string // the DESTINATION argument of `deferred retry`
	rate, reason      string
	perSecond         int
	wait              time.Duration
}

// newAction makes the command of an action.
func newAction(g *command.Options, a action) *cobra.Command {
	f := &actionFlags{action: a}
	cmd := &cobra.Command{
		Use: commandName(a.kind) + arguments(a.kind), Short: a.short, Long: a.long, Example: a.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.Load()
			if err != nil {
				return err
			}
			if err := f.validate(args, c); err != nil {
				return err
			}
			return withAdminClient(cmd.Context(), g, f.wait, func(ctx context.Context, d *adminClient) error { return f.run(ctx, cmd, d) })
		},
	}
	f.filterFlags.add(cmd, a.of)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "every row that matches the filter, or every row without one")
	flags.BoolVar(&f.dryRun, "dry-run", false, "report what would be done, and change nothing")
	flags.StringVar(&f.rate, "rate", "", "with --all: at most this `RATE`, such as 50/s")
	flags.StringVar(&f.reason, "reason", "", "`REASON` for the audit record")
	command.Duration(flags, &f.wait, "wait", 30*time.Second, "wait at most this long for the relay; 0: do not wait")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	if a.kind == dlq.Replay {
		f.routeFlags.add(cmd)
	}
	return cmd
}

// validate checks the flags before anything is asked of the database.
func (f *actionFlags) validate(args []string, c *config.Config) (err error) {
	if args, err = f.destinationOf(args); err != nil {
		return err
	}
	if f.rows, err = numbers("a row", tableCommand(f.of)+" list", args); err != nil {
		return err
	}
	filter, filtered := f.firstGiven()
	if filtered {
		if _, err := f.filter(context.Background(), nil); err != nil {
			return err
		}
	}
	// An id names one event, and purge --key one person: neither needs --all.
	named := f.filterFlags.given("id") || f.kind == dlq.Purge && (f.filterFlags.given("key") || f.filterFlags.given("key-of"))
	switch {
	case len(f.rows) > 0 && f.all:
		return command.UsageError("numbers and --all exclude each other")
	case len(f.rows) > 0 && filtered:
		return command.UsageError("numbers and --" + filter + " exclude each other")
	case len(f.rows) > 0:
	case !f.all && filtered && !named:
		return command.UsageError(fmt.Sprintf("--%s is a filter: add --all to %s every row that matches, or name rows by their numbers", filter, commandName(f.kind)))
	case !f.all && !named:
		return command.UsageError(fmt.Sprintf("no rows named: give numbers from the list, --id, or --all with a filter; see `%s %s --help`", tableCommand(f.of), commandName(f.kind)))
	}
	if f.wait < 0 {
		return command.UsageError(fmt.Sprintf("--wait is %s, want a time such as 30s, or 0", f.wait))
	}
	if f.filterFlags.given("rate") {
		if len(f.rows) > 0 || f.filterFlags.given("id") && !f.all {
			return command.UsageError("--rate needs --all")
		}
		if f.perSecond, err = parseRate(f.rate); err != nil {
			return command.UsageError(err.Error())
		}
	}
	return f.routeFlags.readRoute(c)
}

// destinationOf turns the argument DESTINATION of `deferred retry` into the flag --destination with
// --all, and returns the arguments that are left. An argument that is a number is a row: a
// destination with such a name needs the flag.
func (f *actionFlags) destinationOf(args []string) ([]string, error) {
	if f.kind != dlq.Retry || len(args) != 1 || args[0] == "" {
		return args, nil
	}
	if _, err := strconv.ParseInt(args[0], 10, 64); err == nil {
		return args, nil
	}
	if first, given := f.firstGiven(); given || f.all {
		return args, command.UsageError(fmt.Sprintf("%q is a destination: leave out --%s", args[0], cmp.Or(first, "all")))
	}
	f.all, f.named = true, args[0]
	return nil, f.filterFlags.flags.Set("destination", args[0])
}

// run requests the action for rows by their numbers, or for all rows that the filter chooses, and
// reports the outcome.
func (f *actionFlags) run(ctx context.Context, cmd *cobra.Command, d *adminClient) (err error) {
	by := dlq.Requester{Why: f.reason}
	out := &result{out: printable.Text(cmd.OutOrStdout()), line: command.Progress{W: cmd.ErrOrStderr()}, json: f.json, dryRun: f.dryRun, action: f.action}
	if f.filterFlags.given("id") && !f.all {
		if f.rows, err = f.rowsOfEvent(ctx, d); err != nil {
			return err
		}
	}
	if len(f.rows) == 0 {
		return f.runBulk(ctx, d, by, out)
	}
	for _, n := range f.rows {
		ask := dlq.Action{Kind: f.kind, N: n, Route: f.routeFlags.route, By: by}
		if f.dryRun {
			out.addDryRun(n, d.CheckRequest(ctx, ask))
			continue
		}
		r, err := d.Request(ctx, ask)
		if err != nil && !out.addRowError(n, err) {
			return err
		} else if err == nil {
			out.requests = append(out.requests, r)
		}
	}
	if f.dryRun {
		return out.report(false)
	}
	runs, err := d.waitForRequests(ctx, out.requests, f.wait, f.filterFlags.given("wait"))
	if err != nil {
		return err
	}
	return out.report(runs)
}

// rowsOfEvent returns the numbers of an event's rows that allow the action. If no row does, it
// returns the newest row, so that its error says why.
func (f *actionFlags) rowsOfEvent(ctx context.Context, d *adminClient) (ns []int64, err error) {
	filter, err := f.filter(ctx, d)
	if err != nil {
		return nil, err
	}
	newest := int64(0)
	for cursor, left := "", dlq.MaxLimit; left > 0; {
		page, err := d.List(ctx, f.of, filter, cursor, left)
		if err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			newest = cmp.Or(newest, row.N)
			if d.CheckRequest(ctx, dlq.Action{Kind: f.kind, N: row.N}) == nil {
				ns = append(ns, row.N)
			}
		}
		if left, cursor = left-len(page.Rows), page.Next; cursor == "" {
			break
		}
	}
	switch {
	case newest == 0:
		return nil, fmt.Errorf("there is no %s of event %q; `cdc-relay events show` reports where it is", (&result{action: f.action}).noun(), filter.ID)
	case len(ns) == 0:
		ns = []int64{newest}
	}
	return ns, nil
}

// runBulk requests the action for all rows that the filter chooses.
func (f *actionFlags) runBulk(ctx context.Context, d *adminClient, by dlq.Requester, out *result) error {
	filter, err := f.filter(ctx, d)
	if err != nil {
		return err
	}
	b := dlq.Bulk{Kind: f.kind, Filter: filter, Route: f.routeFlags.route, Rate: f.perSecond, By: by}
	if f.dryRun {
		n, err := d.Match(ctx, b)
		if err != nil {
			return err
		}
		if n == 0 && f.named != "" {
			return noDestination(f.named)
		}
		return out.bulkDryRun(n)
	}
	job, err := d.Start(ctx, b)
	if err != nil {
		return err
	}
	runs := true
	if job.ID == 0 && f.named != "" {
		return noDestination(f.named)
	}
	if job.ID != 0 {
		if job, runs, err = d.waitForJob(ctx, job, f.wait, f.filterFlags.given("wait"), out.progress); err != nil {
			return err
		}
	}
	return out.reportJob(job, runs)
}

// noDestination is the error (exit 1) for a destination that no deferred event waits for.
func noDestination(named string) error {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "no_match", What: fmt.Sprintf("no deferred event waits for %s", command.Clean(shellWord(named))),
		Fix: "name one that `cdc-relay deferred list --group destination` shows",
	}
}

// filterFlags are the flags that choose rows.
type filterFlags struct {
	table *dlq.Table
	flags *pflag.FlagSet
}

// filterFlagNames are the names of all filter flags. Row numbers exclude each of them.
var filterFlagNames = []string{"id", "key", "key-of", "aggregate", "type", "destination", "class", "error", "state", "from", "to"}

// add declares the filter flags on a command.
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

// given reports whether a flag is on the command line.
func (f *filterFlags) given(flag string) bool { return f.flags.Changed(flag) }

// complete lets the shell offer the values of a flag.
func complete(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // cannot happen: the flag exists
	}
}

// count returns how many filter flags were given.
func (f *filterFlags) count() (n int) {
	for _, name := range filterFlagNames {
		if f.given(name) {
			n++
		}
	}
	return n
}

// firstGiven returns the name of the first filter flag that was given.
func (f *filterFlags) firstGiven() (string, bool) {
	for _, name := range filterFlagNames {
		if f.given(name) {
			return name, true
		}
	}
	return "", false
}

// filter makes the filter of the flags. It asks the database through d only for --key-of. d is nil
// when the flags are only checked.
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

// routeFlags are the flags for another destination: one for each part that a sink's routes have.
type routeFlags struct {
	cmd   *cobra.Command
	parts map[string]*string // the flags' values, by the key of the part
	route event.Route        // a part that is nil stays as it was
}

// add declares the flags on a command.
func (f *routeFlags) add(cmd *cobra.Command) {
	f.cmd, f.parts = cmd, map[string]*string{}
	for _, d := range drivers.All {
		for _, p := range d.Route {
			if f.parts[p.Key] == nil { // two sinks may use the same name for a part
				f.parts[p.Key] = cmd.Flags().String(p.Flag(), "", d.Broker+": "+p.Replay)
			}
		}
	}
}

// readRoute reads the flags, and refuses parts that the configured sink does not have.
func (f *routeFlags) readRoute(c *config.Config) error {
	if f.cmd == nil {
		return nil
	}
	given := f.given()
	d := c.Sink.Driver
	if foreign := drivers.OwnerOfForeignPart(d, given); foreign != nil {
		return command.UsageError(fmt.Sprintf("%s %s for %s, and sink.%s is not configured", flagsOf(foreign), isOrAre(foreign), foreign.Broker, foreign.Name))
	}
	f.route = d.RouteOf(given)
	for _, p := range d.Route {
		switch value, is := given[p.Key]; {
		case is && value == "" && !p.MayEmpty:
			return command.UsageError("--" + p.Flag() + " is empty")
		case p.Limit > 0 && len(value) > p.Limit:
			return command.UsageError(fmt.Sprintf("%s %s limited to %d bytes", flagsOf(d), isOrAre(d), p.Limit))
		}
	}
	return nil
}

// given returns the parts of a route that are on the command line, by their keys.
func (f *routeFlags) given() map[string]string {
	given := map[string]string{}
	for key, value := range f.parts {
		if f.cmd.Flags().Changed(strings.ReplaceAll(key, "_", "-")) {
			given[key] = *value
		}
	}
	return given
}

// flagsOf names the flags of a sink's routes, for errors.
func flagsOf(d *sink.Driver) string {
	var names []string
	for _, p := range d.Route {
		names = append(names, "--"+p.Flag())
	}
	return strings.Join(names, " and ")
}

func isOrAre(d *sink.Driver) string {
	if len(d.Route) > 1 {
		return "are"
	}
	return "is"
}

// numbers reads the numbers of rows, requests or jobs. what names them, and shown is the command
// that lists them, for the error.
func numbers(what, shown string, args []string) ([]int64, error) {
	var ns []int64
	for _, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n <= 0 {
			return nil, command.UsageError(fmt.Sprintf("%q is not the number of %s; want one that `%s` shows, such as 17", arg, what, shown))
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// parseRate reads a --rate such as 50/s.
func parseRate(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "/s"))
	if err != nil || n < 1 || n > dlq.MaxRate {
		return 0, errors.New("--rate is " + strconv.Quote(s) + ", want a whole number per second such as 50/s")
	}
	return n, nil
}

// commandName returns the name of an action on the command line and in messages.
func commandName(k dlq.Kind) string {
	if k == dlq.ToDeadLetter {
		return "dead-letter"
	}
	return command.Clean(string(k))
}

// arguments returns the arguments of an action, as its usage shows them.
func arguments(k dlq.Kind) string {
	if k == dlq.Retry {
		return " [NUMBER... | DESTINATION]"
	}
	return " [NUMBER...]"
}

// tableCommand returns the command whose subcommands are about a table's rows.
func tableCommand(of *dlq.Table) string {
	if of == dlq.Deferred {
		return "cdc-relay deferred"
	}
	return "cdc-relay dead-letters"
}
