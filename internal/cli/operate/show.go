// The commands that list rows and show one row with all that is known of it.

package operate

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// newList makes the command list of a table.
func newList(g *command.Options, of *dlq.Table, example string) *cobra.Command {
	var f filterFlags
	short := "List dead letters, newest first"
	if of == dlq.Deferred {
		short = "List deferred events, newest first"
	}
	cmd := &cobra.Command{Use: "list", Short: short, Example: example, Args: command.NoArgs}
	f.add(cmd, of)
	limit := cmd.Flags().Int("limit", 50, fmt.Sprintf("at most this many rows, up to %d", dlq.MaxLimit))
	cursor := cmd.Flags().String("cursor", "", "continue after a list that ended with this `CURSOR`")
	wide := cmd.Flags().Bool("wide", false, "print all columns")
	group := cmd.Flags().String("group", "", "count per `WHAT`: "+strings.Join(dlq.GroupNames, ", "))
	complete(cmd, "group", dlq.GroupNames)
	return reads(g, cmd, func([]string) error {
		filter, err := f.filter(cmd.Context(), nil)
		if err != nil {
			return err
		}
		if f.given("group") {
			if first, given := f.firstGiven(); given && (first != "state" || f.count() > 1) || f.given("cursor") || f.given("limit") {
				return command.UsageError("--group counts all rows of a --state: leave out the other filters, --cursor and --limit")
			}
			return withExitCode(dlq.CheckGroup(*group, filter.State))
		}
		if *limit < 1 || *limit > dlq.MaxLimit {
			return withExitCode(&dlq.BadInput{Name: "limit", What: fmt.Sprintf("is %d, want 1 to %d", *limit, dlq.MaxLimit)})
		}
		return nil
	}, func(ctx context.Context, d *adminClient, _ []string) (any, func(io.Writer) error, error) {
		filter, err := f.filter(ctx, d)
		if err != nil {
			return nil, nil, err
		}
		if *group != "" {
			list, err := d.Groups(ctx, of, *group, filter.State)
			return list, func(w io.Writer) error { return printGroups(w, of, list) }, err
		}
		page, err := d.List(ctx, of, filter, *cursor, *limit)
		return page, func(w io.Writer) error { return printRows(w, of, page, *wide) }, err
	})
}

func printGroups(w io.Writer, of *dlq.Table, list *dlq.Groups) error {
	if len(list.Items) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	by := strings.ToUpper(command.Clean(list.By))
	t := command.Table{Header: []string{"COUNT", "OLDEST (UTC)", by}, Cut: []int{2}}
	refused := of == dlq.Deferred && list.By != "reason"
	if refused {
		t = command.Table{Header: []string{"COUNT", "OLDEST (UTC)", "REASON", by}, Cut: []int{3}}
	}
	for _, g := range list.Items {
		count, oldest := command.Thousands(uint64(g.Count)), "-"
		if g.OrMore {
			count = "at least " + count
		}
		if g.Oldest != nil {
			oldest = g.Oldest.Format(time.DateTime)
		}
		row := []string{count, oldest, shortText(g.Value)}
		if refused {
			row = []string{count, oldest, orDash(g.Reason), shortText(g.Value)}
		}
		if of == dlq.Deferred {
			t.Below = append(t.Below, g.ErrorText)
		}
		t.Rows = append(t.Rows, row)
	}
	err := t.Write(w)
	if err == nil && list.More {
		_, err = fmt.Fprintln(w, "there are more groups")
	}
	if err == nil && of == dlq.Deferred && list.By == "destination" {
		_, err = fmt.Fprintln(w, "`cdc-relay deferred retry DESTINATION` tries its first event now")
	}
	return err
}

// shortText shows a text of an event, which may contain anything. NULL becomes "-".
func shortText(s *string) string {
	switch {
	case s == nil:
		return "-"
	case *s == "":
		return `""`
	}
	return command.Clean(*s)
}

// maxListText is how much of a text a list shows even when the output is no terminal.
const maxListText = 200

// printRows prints a list. Its columns fit a terminal of 80 columns where texts are not long; wide
// prints all columns.
func printRows(w io.Writer, of *dlq.Table, page dlq.Page, wide bool) error {
	if len(page.Rows) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	when := "DIED (UTC)"
	if of == dlq.Deferred {
		when = "DEFERRED (UTC)"
	}
	g := command.Table{Header: []string{"NUMBER", when, "STATE", "KEY", "DESTINATION", "REASON"}, Cut: []int{3, 4}}
	if wide {
		g = command.Table{Header: []string{"NUMBER", when, "STATE", "ID", "AGGREGATE", "KEY", "TYPE", "DESTINATION", "REASON", "ATTEMPTS", "ERROR"}}
	}
	for i := range page.Rows {
		r := &page.Rows[i]
		at := r.DeferredAt
		state := r.State
		if r.DiedAt != nil {
			at = *r.DiedAt
		}
		if r.NextAttempt != nil {
			state = "next " + r.NextAttempt.Format(time.TimeOnly)
		}
		row := []string{fmt.Sprint(r.N), at.Format(time.DateTime), state, shortText(r.Key), command.Clean(r.Destination), orDash(r.Reason)}
		if wide {
			row = []string{
				fmt.Sprint(r.N), at.Format(time.DateTime), state, shortText(r.ID), shortText(r.Aggregate), shortText(r.Key), shortText(r.Type),
				command.Clean(r.Destination), orDash(r.Reason), fmt.Sprint(r.Attempts), command.Clean(r.ErrorText),
			}
		}
		for c := range row {
			row[c] = command.Cut(row[c], maxListText, "…")
		}
		g.Rows = append(g.Rows, row)
	}
	if err := g.Write(w); err != nil || page.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "more: --cursor %s\n", command.Clean(page.Next))
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return command.Clean(s)
}

func printJobs(w io.Writer, jobs []dlq.Job) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	g := command.Table{Header: []string{"JOB", "AT (UTC)", "KIND", "STATE", "MATCHED", "DONE", "FAILED", "SKIPPED", "WHO", "WHY"}, Cut: []int{8, 9}}
	for _, j := range jobs {
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(j.ID), j.At.Format(time.DateTime), commandName(j.Kind), j.State, command.Thousands(uint64(j.Matched)), command.Thousands(uint64(j.Done)),
			command.Thousands(uint64(j.Failed)), command.Thousands(uint64(j.Skipped)), command.Clean(j.Who), command.Clean(j.Why),
		})
	}
	return g.Write(w)
}

func newShow(g *command.Options, of *dlq.Table, example string) *cobra.Command {
	short := "Show a dead letter, its contents and its history"
	if of == dlq.Deferred {
		short = "Show a deferred event and its contents"
	}
	var ns []int64
	return reads(g, &cobra.Command{Use: "show NUMBER", Short: short, Example: example, Args: command.OneArg(1, "the number of one row", "17")}, func(args []string) (err error) {
		ns, err = numbers("a row", tableCommand(of)+" list", args)
		return err
	}, func(ctx context.Context, d *adminClient, _ []string) (any, func(io.Writer) error, error) {
		detail, err := d.Show(ctx, of, ns[0], d.cfg.Admin.ShowPayloads)
		return detail, func(w io.Writer) error { return printDetail(w, detail) }, err
	})
}

// details collects labelled lines.
type details struct{ strings.Builder }

// line adds a line with a label. It cleans the texts in it.
func (d *details) line(label, format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = command.Clean(text)
		}
	}
	fmt.Fprintf(&d.Builder, "%-12s"+format+"\n", append([]any{command.Clean(label)}, args...)...)
}

// lines is a text that may have several lines. It is indented from the second line on, so that no
// line of it looks like one of ours.
type lines string

func printDetail(w io.Writer, r *dlq.Detail) error {
	var d details
	name := fmt.Sprintf("dead letter %d, %s", r.N, r.State)
	if r.State == dlq.Waiting {
		name = fmt.Sprintf("deferred row %d", r.N)
	}
	d.line(name, "%s", command.If(r.Copied, ": it is of another system (pg_upgrade, restore or copy): see `cdc-relay check`"))
	d.line("event", "%s, type %s", shortText(r.ID), shortText(r.Type))
	d.line("key", "%s of %s", shortText(r.Key), shortText(r.Aggregate))
	d.line("position", "%s, committed %s", r.Position, timeText(r.CommittedAt))
	if r.Destination != "" {
		d.line("destination", "%s", r.Destination)
	}
	if r.Reason != "" {
		d.line("refused", "%s (%s): %s", r.Reason, r.Class, orDash(r.ErrorText))
		d.line("", "%s%s", command.Count(r.Attempts, "attempt"), fromTo(r.FirstFailedAt, r.FailedAt))
		if r.Accused != "" {
			d.line("accused", "%s", r.Accused)
		}
	}
	if r.LeftOut != nil {
		d.line("left out", "%s", leftOutText(r.LeftOut))
	}
	if r.Fault != nil {
		d.line("fault", "%s", *r.Fault)
	}
	d.line("deferred", "%s%s", timeText(r.DeferredAt), labelledTime(", next attempt ", r.NextAttempt))
	if r.Behind != nil {
		d.line("waits", "behind deferred row %d of its key", *r.Behind)
	}
	if r.DiedAt != nil {
		d.line("dead", "%s%s%s%s", timeText(*r.DiedAt), labelledTime(", "+r.State+" ", r.ClosedAt), labelledTime(", mirrored ", r.MirroredAt), command.If(r.Redacted, ", redacted"))
	}
	d.contents(r)
	for _, q := range r.Requests {
		d.line("request", "%d: %s%s by %s at %s%s: %s%s%s", q.ID, commandName(q.Kind), routeText(&q), q.Who, timeText(q.At), reasonText(q.Why), q.State, labelledTime(" ", q.DoneAt), command.If(q.Result != "", ", "+q.Result))
	}
	for _, e := range r.Audit {
		d.line("audit", "%s %s by %s%s: %s", timeText(e.At), e.Action, e.Who, reasonText(e.Why), e.Result)
	}
	_, err := io.WriteString(w, d.String())
	return err
}

// routeText says where a replay goes, when it does not go where the event was going.
func routeText(q *dlq.Request) (to string) {
	if q.RouteName != nil {
		to = " to " + shortText(q.RouteName)
	}
	if q.RoutingKey != nil {
		to += " with routing key " + shortText(q.RoutingKey)
	}
	return to
}

func (d *details) contents(r *dlq.Detail) {
	if r.Traceparent != nil {
		d.line("traceparent", "%s", *r.Traceparent)
	}
	for _, c := range r.Columns {
		d.line("column", "%s = %s", c.Name, contentText(c.Value))
	}
	if r.Headers != nil {
		d.line("headers", "%s", contentText(r.Headers))
	}
	if r.Raw != nil {
		d.line("row", "%s", contentText(r.Raw))
	}
	kind := r.ContentType
	if r.PayloadBytes != nil {
		kind += ", " + command.Bytes(*r.PayloadBytes)
	}
	d.line("payload", "%s: %s", kind, contentText(r.Payload))
}

// leftOutText says where to find the values of a row over source.max_event_bytes, which this table
// does not have.
func leftOutText(l *dlq.LeftOut) string {
	if l.Table == "" {
		return "the content of a logical message of " + command.Bytes(l.RowBytes) + ", which is in no table"
	}
	return "values of a row of " + command.Bytes(l.RowBytes) + ": a replay reads it from " + l.Table
}

func contentText(c *dlq.Content) lines {
	var text string
	switch {
	case c == nil:
		return "-"
	case c.Hidden:
		return "not shown (admin.show_payloads is false)"
	case c.Base64 != nil:
		text = "base64 " + *c.Base64
	default:
		text = *c.Text
	}
	if len(text) > maxPayloadText {
		more := "… (--json has all of it)"
		if c.Cut {
			more = "… (--json has 1 MiB of it, the table has the rest)"
		}
		text = strings.ToValidUTF8(text[:maxPayloadText], "") + more
	}
	return lines(strings.ReplaceAll(command.CleanLines(text), "\n", "\n            "))
}

// maxPayloadText is how much of a payload is printed for people: a payload that was too large for
// the broker would fill their terminal.
const maxPayloadText = 4 << 10

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func labelledTime(label string, t *time.Time) string {
	if t == nil {
		return ""
	}
	return label + timeText(*t)
}

func fromTo(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return ", from " + timeText(*from) + " to " + timeText(*to)
}

func reasonText(s string) string { return command.If(s != "", " ("+command.Clean(s)+")") }
