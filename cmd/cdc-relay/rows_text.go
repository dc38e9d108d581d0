package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// grid is a table of texts for people: columns as wide as what stands in them.
type grid struct {
	head []string
	rows [][]string
	most []int // characters of a column on a terminal; 0: any
}

// write pads the columns. On a terminal long texts are cut and the head is bold; piped, everything is there as it is.
func (g *grid) write(w io.Writer) error {
	terminal := onTerminal(w)
	widths := make([]int, len(g.head))
	rows := append([][]string{g.head}, g.rows...)
	for r, row := range rows {
		for c := range row {
			if terminal && g.most[c] > 0 && r > 0 {
				row[c] = cut(row[c], g.most[c])
			}
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
		}
	}
	var b strings.Builder
	for r, row := range rows {
		var line strings.Builder
		for c, text := range row {
			line.WriteString(text)
			if c < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[c]-utf8.RuneCountInString(text)+2))
			}
		}
		if text := strings.TrimRight(line.String(), " "); r == 0 && colourful(w) {
			fmt.Fprintf(&b, "\x1b[1m%s\x1b[0m\n", text)
		} else {
			fmt.Fprintln(&b, text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func cut(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + "…"
}

// shortText is a text of an event, of which anything can be expected; "-" for NULL.
func shortText(s *string) string {
	switch {
	case s == nil:
		return "-"
	case *s == "":
		return `""`
	}
	return clean(*s)
}

// longest is how much of a text is shown in a list even when it is piped.
const longest = 200

func printRows(w io.Writer, of dlq.Of, page dlq.Page) error {
	if len(page.Rows) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	g := grid{most: []int{0, 0, 0, 36, 16, 24, 24, 32, 0, 0, 60}}
	when := "DIED (UTC)"
	if of == dlq.Parked {
		when = "PARKED (UTC)"
	}
	g.head = []string{"NUMBER", when, "STATE", "ID", "AGGREGATE", "KEY", "TYPE", "DESTINATION", "REASON", "ATTEMPTS", "ERROR"}
	for i := range page.Rows {
		r := &page.Rows[i]
		at := r.ParkedAt
		state := r.State
		if r.DiedAt != nil {
			at = *r.DiedAt
		}
		if r.NextAttempt != nil {
			state = "next " + r.NextAttempt.Format(time.TimeOnly)
		}
		row := []string{
			fmt.Sprint(r.N), at.Format(time.DateTime), state, shortText(r.ID), shortText(r.Aggregate), shortText(r.Key), shortText(r.Type),
			clean(r.Destination), orDash(r.Reason), fmt.Sprint(r.Attempts), clean(r.Error),
		}
		for c := range row {
			row[c] = cut(row[c], longest)
		}
		g.rows = append(g.rows, row)
	}
	if err := g.write(w); err != nil || page.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "more: --cursor %s\n", page.Next)
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

func printJobs(w io.Writer, jobs []dlq.Job) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	g := grid{head: []string{"JOB", "AT (UTC)", "KIND", "STATE", "MATCHED", "DONE", "FAILED", "SKIPPED", "WHO", "WHY"}, most: []int{0, 0, 0, 0, 0, 0, 0, 0, 30, 40}}
	for _, j := range jobs {
		g.rows = append(g.rows, []string{
			fmt.Sprint(j.ID), j.At.Format(time.DateTime), string(j.Kind), j.State, thousands(uint64(j.Matched)), thousands(uint64(j.Done)),
			thousands(uint64(j.Failed)), thousands(uint64(j.Skipped)), clean(j.Who), clean(j.Why),
		})
	}
	return g.write(w)
}

// details writes labels and what they say.
type details struct{ strings.Builder }

func (d *details) line(label, format string, args ...any) {
	fmt.Fprintf(&d.Builder, "%-12s"+format+"\n", append([]any{label}, args...)...)
}

func printDetail(w io.Writer, r *dlq.Detail) error {
	var d details
	name := fmt.Sprintf("dead letter %d, %s", r.N, r.State)
	if r.State == dlq.Waiting {
		name = fmt.Sprintf("parked row %d", r.N)
	}
	fmt.Fprintf(&d, "%s%s\n", name, ifSet(r.Copied, ": it came with a copy of another system's database, and nobody acts on it here"))
	d.line("event", "%s, type %s", shortText(r.ID), shortText(r.Type))
	d.line("key", "%s of %s", shortText(r.Key), shortText(r.Aggregate))
	d.line("position", "%s, committed %s", r.Position, stamp(r.CommittedAt))
	if r.Destination != "" {
		d.line("destination", "%s", clean(r.Destination))
	}
	if r.Reason != "" {
		d.line("refused", "%s (%s): %s", r.Reason, r.Class, orDash(r.Error))
		d.line("", "%s%s", count(r.Attempts, "attempt"), span(r.FirstFailedAt, r.FailedAt))
		if r.Accused != "" {
			d.line("accused", "%s", clean(r.Accused))
		}
	}
	if r.Fault != nil {
		d.line("fault", "%s", clean(*r.Fault))
	}
	d.line("parked", "%s%s", stamp(r.ParkedAt), at(", next attempt ", r.NextAttempt))
	if r.Behind != nil {
		d.line("waits", "behind parked row %d of its key", *r.Behind)
	}
	if r.DiedAt != nil {
		d.line("dead", "%s%s%s%s", stamp(*r.DiedAt), at(", "+r.State+" ", r.ClosedAt), at(", mirrored ", r.MirroredAt), ifSet(r.Redacted, ", redacted"))
	}
	d.contents(r)
	for _, q := range r.Requests {
		d.line("request", "%d: %s%s by %s at %s%s: %s%s%s", q.ID, q.Kind, rerouted(&q), clean(q.Who), stamp(q.At), why(q.Why), q.State, at(" ", q.DoneAt), ifSet(q.Result != "", ", "+clean(q.Result)))
	}
	for _, e := range r.Audit {
		d.line("audit", "%s %s by %s%s: %s", stamp(e.At), e.Action, clean(e.Who), why(e.Why), clean(e.Result))
	}
	_, err := io.WriteString(w, d.String())
	return err
}

// rerouted is where a replay goes, if not to where the event was going.
func rerouted(q *dlq.Request) (to string) {
	if q.RouteName != nil {
		to = " to " + shortText(q.RouteName)
	}
	if q.RoutingKey != nil {
		to += " with routing key " + shortText(q.RoutingKey)
	}
	return to
}

// contents are shown as they are: they may have many lines.
func (d *details) contents(r *dlq.Detail) {
	if r.Traceparent != nil {
		d.line("traceparent", "%s", clean(*r.Traceparent))
	}
	for _, c := range r.Columns {
		d.line("column", "%s = %s", clean(c.Name), show(c.Value))
	}
	if r.Headers != nil {
		d.line("headers", "%s", show(r.Headers))
	}
	if r.Raw != nil {
		d.line("row", "%s", show(r.Raw))
	}
	kind := r.ContentType
	if r.PayloadBytes != nil {
		kind += ", " + showBytes(*r.PayloadBytes)
	}
	d.line("payload", "%s: %s", kind, show(r.Payload))
}

func show(c *dlq.Content) (text string) {
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
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + "… (--json has all of it)"
	}
	return text
}

// mostShown is how much of a payload people are shown: one that was too large for the broker would fill their terminal.
const mostShown = 4 << 10

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func at(label string, t *time.Time) string {
	if t == nil {
		return ""
	}
	return label + stamp(*t)
}

func span(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return ", from " + stamp(*from) + " to " + stamp(*to)
}

func ifSet(yes bool, s string) string {
	if yes {
		return s
	}
	return ""
}

func why(s string) string { return ifSet(s != "", " ("+clean(s)+")") }
