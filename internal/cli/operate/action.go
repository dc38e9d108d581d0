// Package operate is the operators' commands: dead-letters, deferred and events. They read the
// database and store requests, which the leading relay carries out.
package operate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// action is a command that requests something for rows, by their numbers or by a filter.
type action struct {
	kind                 dlq.Kind
	of                   *dlq.Table
	done                 string // what a row is afterwards
	short, long, example string
}

// actionFlags are the command line of an action.
type actionFlags struct {
	action
	filterFlags
	routeFlags        // of a replay
	rows              []int64
	all, dryRun, json bool
	rate, reason      string
	perSecond         int
	wait              time.Duration
}

func newAction(g *command.Options, a action) *cobra.Command {
	f := &actionFlags{action: a}
	cmd := &cobra.Command{
		Use: commandName(a.kind) + " [NUMBER...]", Short: a.short, Long: a.long, Example: a.example,
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
	flags.DurationVar(&f.wait, "wait", 30*time.Second, "wait at most this long for the relay; 0: do not wait")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	if a.kind == dlq.Replay {
		f.routeFlags.add(cmd)
	}
	return cmd
}

// validate checks the flags. It needs no database.
func (f *actionFlags) validate(args []string, c *config.Config) (err error) {
	if f.rows, err = numbers("a row", tableCommand(f.of)+" list", args); err != nil {
		return err
	}
	if _, err := f.filter(context.Background(), nil); err != nil {
		return err
	}
	filter, filtered := f.firstGiven()
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
	return f.routeFlags.read(c)
}

func (f *actionFlags) run(ctx context.Context, cmd *cobra.Command, d *adminClient) (err error) {
	by := dlq.Requester{Why: f.reason}
	out := &result{out: printable.Text(cmd.OutOrStdout()), line: output.Progress{W: cmd.ErrOrStderr()}, json: f.json, dryRun: f.dryRun, action: f.action}
	if f.filterFlags.given("id") && !f.all {
		if f.rows, err = f.rowsOfEvent(ctx, d); err != nil {
			return err
		}
	}
	if len(f.rows) > 0 {
		return f.runRows(ctx, d, by, out)
	}
	return f.runBulk(ctx, d, by, out)
}

// rowsOfEvent are the rows of an event that allow the action; if none does, the newest, whose error
// says why.
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

// runRows requests the action for rows by their numbers.
func (f *actionFlags) runRows(ctx context.Context, d *adminClient, by dlq.Requester, out *result) error {
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

// runBulk requests the action for all rows that the filter selects.
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
		return out.bulkDryRun(n)
	}
	job, err := d.Start(ctx, b)
	if err != nil {
		return err
	}
	runs := true
	if job.ID != 0 {
		if job, runs, err = d.waitForJob(ctx, job, f.wait, f.filterFlags.given("wait"), out.progress); err != nil {
			return err
		}
	}
	return out.reportJob(job, runs)
}
