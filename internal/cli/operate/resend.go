// The command resend: it sends rows of the outbox tables again.

package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// resendFlags are the flags of a resend.
type resendFlags struct {
	routeFlags
	dlq.Resend
	key, aggregate, from, to, rate string
	ids                            []string
	none, dryRun, json             bool
	wait                           time.Duration
}

// NewResend makes the command resend.
func NewResend(g *command.Options) *cobra.Command {
	f := &resendFlags{}
	cmd := &cobra.Command{
		Use:   "resend",
		Short: "Send rows of the outbox tables again, while the relay runs",
		Long: `Sends rows of the outbox tables again, whether they were sent or not: when a queue was bound late,
or a consumer has lost events that were confirmed. Name the rows by their ids, their key, the time
of their events or an SQL condition. --unsent sends those that are not known to be sent, and --gap
those of a gap that "cdc-relay accept" has accepted.

The command counts the rows and asks the leader, which copies them into the retry table in one
snapshot. They go from there, with the header cdc_replay: consumers tell them from new events by
their ids. Rows of a key stay in their order among themselves, and newer events of the key do not
wait for them. A row that is deferred already, or an open dead letter, is left out.

With track_commit_timestamp = on the order is that of the commits. Otherwise name a column that
rises with each commit of a key (--order-by), or accept any order (--unordered). A column with the
default now() is set when a transaction begins, and is refused without --order-by-begin. --where
runs with the relay's rights: it needs the relay's role.

"cdc-relay dead-letters job NUMBER" shows how far a resend is, and its --cancel ends it.`,
		Example: `  cdc-relay resend --id 0198c7a2-41d8-7e5a-9d2c-5a3f6e0b1c11
  cdc-relay resend --from 2026-11-20T10:00:00Z --to 2026-11-20T10:20:00Z --dry-run
  cdc-relay resend --key customer-17 --exchange orders.late --reason 'bound late, INC-4711'
  cdc-relay resend --where "type = 'OrderPaid'" --order-by created_at --rate 200/s
  cdc-relay resend --unsent --unordered
  cdc-relay resend --gap 3 --none --reason 'all of it was sent by hand'`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, g) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.ids, "id", nil, "`ID` of an event; may be given more than once")
	flags.StringVar(&f.key, "key", "", "`KEY` of the events")
	flags.StringVar(&f.aggregate, "aggregate", "", "`AGGREGATE` of the events")
	flags.StringVar(&f.from, "from", "", "events since `TIME` (UTC): 2026-11-20T15:04:05Z, 2026-11-20, 90m or 7d")
	flags.StringVar(&f.to, "to", "", "events before `TIME`, written as for --from")
	flags.StringVar(&f.Condition, "where", "", "rows that this `SQL` expression selects")
	flags.Int64Var(&f.Gap, "gap", 0, "rows of the accepted gap `NUMBER` that are not known to be sent;\nthe gap is closed")
	flags.BoolVar(&f.none, "none", false, "with --gap: close it by your word, and send nothing")
	flags.BoolVar(&f.Unsent, "unsent", false, "rows that are not known to be sent, and that the slot will not send")
	flags.StringVar(&f.Table, "table", "", "only rows of this `TABLE`, as schema.name; default: every outbox table")
	f.routeFlags.add(cmd)
	flags.BoolVar(&f.dryRun, "dry-run", false, "count the rows, and change nothing")
	flags.StringVar(&f.rate, "rate", "", "at most this `RATE`, such as 50/s; what fell due during a pause\nof the relay or the broker then goes at once")
	flags.StringVar(&f.OrderBy, "order-by", "", "order by this `COLUMN` if the order of the commits is not known")
	flags.BoolVar(&f.OrderByBegin, "order-by-begin", false, command.OrderByBeginUsage)
	flags.BoolVar(&f.Unordered, "unordered", false, "send in any order if the order of the commits is not known")
	flags.StringVar(&f.By.Why, "reason", "", "`REASON` for the audit record")
	command.Duration(flags, &f.wait, "wait", 30*time.Second, "wait at most this long for the relay; 0: do not wait")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// choose checks the flags and fills in dlq.Resend, which says which rows are sent.
func (f *resendFlags) choose(cmd *cobra.Command) (err error) {
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	var chosen []string
	for _, flag := range []string{"id", "gap", "unsent", "key", "aggregate", "from", "to", "where"} {
		if given(flag) {
			chosen = append(chosen, flag)
		}
	}
	alone := slices.IndexFunc(chosen, func(flag string) bool { return flag == "id" || flag == "gap" || flag == "unsent" })
	switch {
	case len(chosen) == 0:
		return command.UsageError("no rows named: give --id, --key, --from and --to, --where, --gap or --unsent")
	case alone >= 0 && len(chosen) > 1:
		return command.UsageError(fmt.Sprintf("--%s excludes --%s", chosen[alone], chosen[(alone+1)%len(chosen)]))
	case len(chosen) == 1 && chosen[0] == "aggregate":
		return command.UsageError("--aggregate needs --key, --from, --to or --where")
	case given("where") && strings.TrimSpace(f.Condition) == "":
		return command.UsageError("--where is empty: --where true chooses every row")
	case given("gap") && f.Gap < 1:
		return command.UsageError(fmt.Sprintf("--gap is %d, want the number of a gap, as `cdc-relay check` names it", f.Gap))
	case f.none && !given("gap"):
		return command.UsageError("--none needs --gap")
	case f.none && f.By.Why == "":
		return command.UsageError("--none needs --reason: nothing else says why the rows need not be sent")
	case f.OrderBy != "" && f.Unordered:
		return command.UsageError("--order-by and --unordered exclude each other")
	case f.OrderByBegin && f.OrderBy == "":
		return command.UsageError("--order-by-begin is for the column of --order-by")
	case f.wait < 0:
		return command.UsageError(fmt.Sprintf("--wait is %s, want a time such as 30s, or 0", f.wait))
	}
	if given("rate") {
		if f.Rate, err = parseRate(f.rate); err != nil {
			return command.UsageError(err.Error())
		}
	}
	for _, id := range f.ids {
		f.IDs = append(f.IDs, []byte(id))
	}
	if given("key") {
		f.Key = []byte(f.key)
	}
	if given("aggregate") {
		f.Aggregate = []byte(f.aggregate)
	}
	for _, at := range []struct {
		flag, text string
		to         *time.Time
	}{{"from", f.from, &f.From}, {"to", f.to, &f.To}} {
		if !given(at.flag) {
			continue
		}
		if *at.to, err = command.ParseTime(at.text, time.Now()); err != nil {
			return command.UsageError(fmt.Sprintf("--%s is %q: %v", at.flag, at.text, err))
		}
		if at.to.IsZero() { // the zero time would mean any time
			return command.UsageError(fmt.Sprintf("--%s is %q: no event is so old", at.flag, at.text))
		}
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		return command.UsageError("--from is not before --to: no event is between them")
	}
	return nil
}

// run counts the rows, asks the leader to send them, and waits for the job.
func (f *resendFlags) run(cmd *cobra.Command, g *command.Options) error {
	if err := f.choose(cmd); err != nil {
		return err
	}
	c, rc, _, err := g.Source()
	if err != nil {
		return err
	}
	if err := f.routeFlags.readRoute(c); err != nil {
		return err
	}
	f.Route = f.routeFlags.route
	return withAdminClient(cmd.Context(), g, max(f.wait, countTimeout), func(ctx context.Context, d *adminClient) error {
		out := &result{action: action{kind: dlq.ResendRows}, out: printable.Text(cmd.OutOrStdout()), line: command.Progress{W: cmd.ErrOrStderr()}, json: f.json, dryRun: f.dryRun}
		if f.none {
			return f.closeGap(ctx, d, out)
		}
		counted, err := repair.CountResend(ctx, rc, d.pool, &f.Resend, wiring.Ordering(c).Scope(), f.dryRun)
		if err != nil {
			return err
		}
		f.Matched = counted.Recovered
		if f.dryRun {
			return f.reportDryRun(out, counted)
		}
		for _, named := range counted.Named {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: "+command.Clean(named))
		}
		var job dlq.Job
		if f.Matched > 0 || f.Gap != 0 {
			if job, err = d.StartResend(ctx, f.Resend); err != nil {
				return resendError(err)
			}
		}
		runs := true
		if job.ID != 0 {
			if job, runs, err = d.waitForJob(ctx, job, f.wait, cmd.Flags().Changed("wait"), out.progress); err != nil {
				return err
			}
		}
		return out.reportJob(job, runs)
	})
}

// countTimeout is how long the outbox tables may be read to count the rows, on top of what a
// command may take.
const countTimeout = 10 * time.Minute

func resendError(err error) error {
	if busy := (*dlq.Busy)(nil); errors.As(err, &busy) {
		return &event.Stop{Code: event.ExitFailure, Reason: "busy", What: busy.Error(), Fix: fmt.Sprintf("wait for it, or end it: `cdc-relay dead-letters job %d --cancel`", busy.Job)}
	}
	return err
}

// closeGap closes a gap because the operator says that nothing of it need be sent.
func (f *resendFlags) closeGap(ctx context.Context, d *adminClient, out *result) error {
	if f.dryRun {
		if err := d.CheckGapIsOpen(ctx, f.Gap); err != nil {
			return err
		}
		fmt.Fprintf(out.out, "gap %d would be closed, and nothing sent; nothing was changed\n", f.Gap)
		return nil
	}
	if err := d.CloseGap(ctx, f.Gap, f.By); err != nil {
		return err
	}
	if f.json {
		return command.JSON(out.out, map[string]any{"gap": f.Gap, "closed": true})
	}
	fmt.Fprintf(out.out, "gap %d is closed: nothing of it is sent\n", f.Gap)
	return nil
}

func (f *resendFlags) reportDryRun(out *result, counted repair.Report) error {
	if f.json {
		return command.JSON(out.out, map[string]any{
			"dry_run": true, "matched": counted.Recovered, "order": counted.Order, "rows_without_transaction": counted.Unknown, "notes": append([]string{}, counted.Named...),
		})
	}
	fmt.Fprintf(out.out, "%s would be sent again; nothing was changed\norder: %s\n", command.Count(uint64(counted.Recovered), "row"), counted.Order)
	if counted.Unknown > 0 {
		fmt.Fprintf(out.out, "%s of them do not say which transaction wrote them\n", command.Count(uint64(counted.Unknown), "row"))
	}
	for _, named := range counted.Named {
		fmt.Fprintln(out.out, "note: "+command.Clean(named))
	}
	return nil
}
