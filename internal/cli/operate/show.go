// The commands dead-letters show and deferred show.

package operate

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

func newShow(g *command.Options, of *dlq.Table, example string) *cobra.Command {
	var asJSON bool
	short := "Show a dead letter, its contents and its history"
	if of == dlq.Deferred {
		short = "Show a deferred event and its contents"
	}
	cmd := &cobra.Command{
		Use: "show NUMBER", Short: short, Example: example, Args: command.OneArg(1, "the number of one row", "17"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, err := numbers("a row", tableCommand(of)+" list", args)
			if err != nil {
				return err
			}
			return withAdminClient(cmd.Context(), g, 0, func(ctx context.Context, d *adminClient) error {
				detail, err := d.Show(ctx, of, ns[0], d.cfg.Admin.ShowPayloads)
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(cmd.OutOrStdout(), detail)
				}
				return printDetail(cmd.OutOrStdout(), detail)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// details writes labelled lines.
type details struct{ strings.Builder }

// line cleans the texts in it.
func (d *details) line(label, format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = output.Clean(text)
		}
	}
	fmt.Fprintf(&d.Builder, "%-12s"+format+"\n", append([]any{output.Clean(label)}, args...)...)
}

// lines is a text that may have several lines. Those after the first are indented: none looks like
// a line of ours.
type lines string

func printDetail(w io.Writer, r *dlq.Detail) error {
	var d details
	name := fmt.Sprintf("dead letter %d, %s", r.N, r.State)
	if r.State == dlq.Waiting {
		name = fmt.Sprintf("deferred row %d", r.N)
	}
	d.line(name, "%s", output.If(r.Copied, ": it is of another system (pg_upgrade, restore or copy): see `cdc-relay check`"))
	d.line("event", "%s, type %s", shortText(r.ID), shortText(r.Type))
	d.line("key", "%s of %s", shortText(r.Key), shortText(r.Aggregate))
	d.line("position", "%s, committed %s", r.Position, timeText(r.CommittedAt))
	if r.Destination != "" {
		d.line("destination", "%s", r.Destination)
	}
	if r.Reason != "" {
		d.line("refused", "%s (%s): %s", r.Reason, r.Class, orDash(r.Error))
		d.line("", "%s%s", output.Count(r.Attempts, "attempt"), fromTo(r.FirstFailedAt, r.FailedAt))
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
		d.line("dead", "%s%s%s%s", timeText(*r.DiedAt), labelledTime(", "+r.State+" ", r.ClosedAt), labelledTime(", mirrored ", r.MirroredAt), output.If(r.Redacted, ", redacted"))
	}
	d.contents(r)
	for _, q := range r.Requests {
		d.line("request", "%d: %s%s by %s at %s%s: %s%s%s", q.ID, commandName(q.Kind), routeText(&q), q.Who, timeText(q.At), reasonText(q.Why), q.State, labelledTime(" ", q.DoneAt), output.If(q.Result != "", ", "+q.Result))
	}
	for _, e := range r.Audit {
		d.line("audit", "%s %s by %s%s: %s", timeText(e.At), e.Action, e.Who, reasonText(e.Why), e.Result)
	}
	_, err := io.WriteString(w, d.String())
	return err
}

// routeText is where a replay goes, if not to where the event was going.
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
		kind += ", " + output.Bytes(*r.PayloadBytes)
	}
	d.line("payload", "%s: %s", kind, contentText(r.Payload))
}

// leftOutText says where the values are that a row over source.max_event_bytes lacks here.
func leftOutText(l *dlq.LeftOut) string {
	if l.Table == "" {
		return "the content of a logical message of " + output.Bytes(l.RowBytes) + ", which is in no table"
	}
	return "values of a row of " + output.Bytes(l.RowBytes) + ": a replay reads it from " + l.Table
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
	return lines(strings.ReplaceAll(output.CleanLines(text), "\n", "\n            "))
}

// maxPayloadText is how much of a payload people are shown: one that was too large for the broker
// would fill their terminal.
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

func reasonText(s string) string { return output.If(s != "", " ("+output.Clean(s)+")") }
