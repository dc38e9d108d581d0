// The command recover: it sends the rows that a lost slot did not send.

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

func newRecover(g *command.Options) *cobra.Command {
	var opt repair.RecoverOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Send the rows that a lost slot did not send, from the outbox table",
		Long: `For a slot that was dropped or invalidated, or whose publication was created again: creates a new
slot and copies the rows that are not known to be sent from the outbox table into the retry table,
in the same snapshot. The relay delivers them in order, before newer events of their key. For a gap
that "cdc-relay accept" has accepted: copies what was not sent of it, and the slot stays as it is.

What was confirmed in the last moments before a crash may be sent again, with the same id. Deferred
events stay as they are, and so do dead letters. Rows that were deleted from the table, and logical
messages, cannot be recovered. Of rows that do not say which transaction wrote them (column
outbox.transaction) nothing is known: --where chooses them.

With track_commit_timestamp = on the order is that of the commits. Otherwise name a column that
rises with each commit of a key (--order-by), or accept any order (--unordered). A column with the
default now() is set when a transaction begins, and is refused without --order-by-begin.

Stop every relay of the slot first. If you interrupt the command, nothing is copied, and you can run
it again. --dry-run changes nothing.`,
		Example: `  cdc-relay recover --dry-run
  cdc-relay recover --reason 'slot invalidated, INC-4711'
  cdc-relay recover --order-by created_at
  cdc-relay recover --where "created_at > '2026-01-31'" --unordered --json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, rc, log, err := g.Source()
			if err != nil {
				return err
			}
			report, err := runRecovery(cmd, c, rc, log, opt, repair.Recover)
			if err != nil {
				return err
			}
			if asJSON {
				return command.JSON(cmd.OutOrStdout(), report)
			}
			return printRecovery(cmd.OutOrStdout(), report)
		},
	}
	cmd.Flags().BoolVar(&opt.DryRun, "dry-run", false, "count the rows, report their order, and change nothing")
	orderFlags(cmd, &opt)
	cmd.Flags().StringVar(&opt.Where, "where", "", "send only rows that this `SQL` expression selects")
	cmd.Flags().BoolVar(&opt.SameData, "same-data", false, "this server goes on with the data of the one that the slot was on:\nwhat was deferred there is sent here")
	cmd.Flags().StringVar(&opt.Reason, "reason", "", "`REASON` for the audit record")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// orderFlags adds the flags about the order of the rows, which recover and init --backfill have.
func orderFlags(cmd *cobra.Command, opt *repair.RecoverOptions) {
	cmd.Flags().StringVar(&opt.OrderBy, "order-by", "", "order by this `COLUMN` if the order of the commits is not known")
	cmd.Flags().BoolVar(&opt.OrderByBegin, "order-by-begin", false, command.OrderByBeginUsage)
	cmd.Flags().BoolVar(&opt.Unordered, "unordered", false, "send in any order if the order of the commits is not known")
}

// runRecovery runs do, which is a recovery or a backfill, and shows its progress. A signal ends it,
// and it undoes what it has begun.
func runRecovery(cmd *cobra.Command, c *config.Config, rc source.Config, log *zap.Logger, opt repair.RecoverOptions,
	do func(context.Context, source.Config, repair.RecoverOptions) (repair.Report, error),
) (repair.Report, error) {
	if opt.OrderBy != "" && opt.Unordered {
		return repair.Report{}, command.UsageError("--order-by and --unordered exclude each other")
	}
	if opt.OrderByBegin && opt.OrderBy == "" {
		return repair.Report{}, command.UsageError("--order-by-begin is for the column of --order-by")
	}
	out, err := wiring.OfflineSink(c, log)
	if err != nil {
		return repair.Report{}, err
	}
	opt.Sink, opt.Scope = out, wiring.Ordering(c).Scope()
	shown := copyProgress{w: cmd.ErrOrStderr(), began: time.Now()}
	shown.line.W = shown.w
	opt.Progress = shown.show
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	report, err := do(ctx, rc, opt)
	shown.line.Clear()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil && cmd.Context().Err() == nil {
		err = errors.New("interrupted: nothing was copied, run it again")
	}
	return report, err
}

// copyProgress shows how far the copy is: each second on a terminal, elsewhere each ten seconds.
type copyProgress struct {
	w           io.Writer
	line        command.Progress
	began, last time.Time
}

// show is called after each part of the copy.
func (p *copyProgress) show(done, of int64) {
	now := time.Now()
	every := 10 * time.Second
	if command.IsTerminal(p.w) {
		every = time.Second
	}
	if p.last.IsZero() {
		p.last = p.began
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	text := fmt.Sprintf("copied %s of %s rows", command.Thousands(uint64(done)), command.Thousands(uint64(of)))
	if done > 0 {
		left := time.Duration(float64(now.Sub(p.began)) / float64(done) * float64(of-done))
		text += ", " + command.Age(left.Round(time.Second)) + " left"
	}
	if command.IsTerminal(p.w) {
		p.line.Show(text)
		return
	}
	_, _ = fmt.Fprintln(p.w, text) // a reader of the output that has gone is no reason to stop
}

// printRecovery prints the report of a recovery for people.
func printRecovery(w io.Writer, r repair.Report) error {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	count := func(n int64, noun string) string { return command.Count(uint64(n), noun) }
	switch {
	case r.DryRun:
		add("dry run, nothing is changed: %s of the gap would be copied into the retry table", count(r.Recovered, "row"))
	default:
		add("recovered: %s copied into the retry table. The relay sends them first: start it, unless it waits with --hold-on-fatal", count(r.Recovered, "row"))
	}
	add("order: %s", r.Order)
	if r.Unknown > 0 {
		add("unknown: %s of them do not say which transaction wrote them, and may have been sent before, with the same id", count(r.Unknown, "row"))
	}
	if r.Held > 0 {
		add("already held: %s%s, which the retry table or the dead letters have", command.If(r.DryRun, "up to "), count(r.Held, "row"))
	}
	if r.Moved > 0 {
		add("sent here from now on: %s of the server before", count(r.Moved, "row")+" of the retry table and the dead letters")
	}
	if r.LeftOut > 0 {
		add("left out: %s that %s the condition; they are not known to be sent, as before", count(r.LeftOut, "row"), command.If(r.LeftOut == 1, "does not meet")+command.If(r.LeftOut != 1, "do not meet"))
	}
	if r.FromLSN != "" || r.UntilLSN != "" {
		add("the gap in the WAL: from %s to %s", cmp.Or(r.FromLSN, "an unknown position"), cmp.Or(r.UntilLSN, "the start of the new slot"))
	}
	if r.NewerSent {
		add("the slot was in use since: newer events were sent before these, so the order of a key is not kept between them")
	}
	for _, named := range r.Named {
		add("note: %s", named)
	}
	for _, lost := range r.Lost {
		add("cannot be recovered: %s", lost)
	}
	if r.OpenGaps > 0 {
		add("%s of this slot are still open: run it again", count(r.OpenGaps, "accepted gap"))
	}
	_, err := fmt.Fprintln(w, command.ForTerminal(w, command.CleanLines(strings.Join(lines, "\n")), 0))
	return err
}
