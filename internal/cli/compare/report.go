// Output of compare debezium: differences as they are found, progress, and the summary.

package compare

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
)

func (r *comparison) found(d compare.Difference) {
	if len(r.shown) == r.f.limit {
		return
	}
	r.shown = append(r.shown, d)
	if r.f.json {
		return
	}
	r.line.Clear()
	fmt.Fprintf(r.out, "%s %s\n", output.Clean(d.ID), output.CleanLines(d.String()))
	for side, where := range d.Where {
		if where != "" {
			fmt.Fprintf(r.out, "    %-6s %s\n", compare.Side(side), output.Clean(where))
		}
	}
}

// note writes a line to stderr.
func (r *comparison) note(text string) {
	r.line.Clear()
	fmt.Fprintln(r.line.W, output.CleanLines(text))
}

// progress shows on a terminal how far it is.
func (r *comparison) progress() {
	theirs, bytes := r.matcher.Waiting(compare.Theirs)
	ours, more := r.matcher.Waiting(compare.Ours)
	r.line.Show(fmt.Sprintf("%s compared, %s, waiting for a counterpart: theirs %s, ours %s (%s)", output.Thousands(uint64(r.matcher.Compared)),
		output.Count(uint64(r.matcher.Total()), "difference"), output.Thousands(uint64(theirs)), output.Thousands(uint64(ours)), output.Bytes(bytes+more)))
}

// report prints the summary. Its error is of exit 1: why it was cut short, or that there are
// differences, or nothing to compare.
func (r *comparison) report(interrupted bool, failure error) error {
	r.line.Clear()
	r.matcher.Finish(interrupted || failure != nil)
	if r.f.json {
		if err := output.JSON(r.out, summary{r.matcher.Counts, r.shown, r.notes, interrupted}); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(r.out, output.CleanLines(r.text(interrupted))); err != nil {
		return err
	}
	m := r.matcher
	stop := &event.Stop{Code: event.ExitFailure, Reason: "compare", Err: failure}
	switch {
	case failure != nil:
		stop.What = "compare"
	case m.Total() > 0:
		stop.What = fmt.Sprintf("%s in %s", output.Count(uint64(m.Total()), "difference"), output.Count(uint64(m.Compared), "compared event"))
	case m.Compared == 0:
		stop.What = "no event was compared"
		stop.Fix = "check the names of the topics or exchanges, --routing-key and --id-header, and whether both relays run"
	default:
		return nil
	}
	return stop
}

func (r *comparison) text(interrupted bool) string {
	m := r.matcher
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{label}, args...)...)
	}
	if n := m.Total(); n > int64(len(r.shown)) {
		line("", "%s more", output.Thousands(uint64(n)-uint64(len(r.shown))))
	}
	line("compared", "%s%s: %s equal, %s not", output.Count(uint64(m.Compared), "event"), output.If(interrupted, ", then interrupted"), output.Thousands(uint64(m.Equal)), output.Thousands(uint64(m.Compared-m.Equal)))
	for side := range m.Events {
		line(compare.Side(side).String(), "%s, %s again", output.Count(uint64(m.Events[side]), "message"), output.Thousands(uint64(m.Duplicates[side])))
	}
	for _, kind := range compare.Kinds {
		if n := m.Differences[kind]; n > 0 {
			line("differences", "%s: %s", kind, output.Thousands(uint64(n)))
		}
	}
	for _, part := range []struct {
		n    int64
		what string
	}{
		{m.LeftOut.ContextHeaders, "headers __debezium.context.* of %s"},
		{m.LeftOut.SchemaNames, "the name of the value's schema of %s"},
		{m.LeftOut.Times, "the time of %s (--times compares it)"},
		{m.LeftOut.Partitions, "the partition of %s without a key"},
		{m.LeftOut.Ignored, "headers of %s, by --ignore-header"},
	} {
		if part.n > 0 {
			line("left out", part.what, output.Count(uint64(part.n), "event"))
		}
	}
	for side := range m.Events {
		name := compare.Side(side).String()
		if n := m.NoID[side]; n > 0 && !r.f.strict {
			line("left out", "%s of %s without the header %q", output.Count(uint64(n), "message"), name, r.f.idHeader)
		}
		if n := m.AtTheEdge[side]; n > 0 {
			line("not counted", "%s of %s at the beginning or the end, whose counterpart may have come before or after", output.Count(uint64(n), "event"), name)
		}
		if n := m.GivenUp[side]; n > 0 {
			line("given up", "%s of %s, to stay within --memory: of those that are missing", output.Count(uint64(n), "event"), name)
		}
	}
	for _, note := range r.notes {
		line("note", "%s", note)
	}
	return b.String()
}

// summary is what --json prints. Pairs of numbers are theirs and ours.
type summary struct {
	compare.Counts
	First       []compare.Difference `json:"first"`
	Notes       []string             `json:"notes"`
	Interrupted bool                 `json:"interrupted"`
}

// samePartitions reports whether partitions are comparable, and notes where they are not.
func (r *comparison) samePartitions(sides [2]side) bool {
	theirs, ours := sides[compare.Theirs].partitions(), sides[compare.Ours].partitions()
	same := theirs != nil
	for i, n := range theirs {
		if n != ours[i] {
			same = false
			r.notes = append(r.notes, fmt.Sprintf("%s has %s, %s has %d: partitions are not compared", r.f.theirs[i], output.Count(uint64(n), "partition"), r.f.ours[i], ours[i]))
		}
	}
	return same
}

// interrupted reports whether the end was an interruption and no failure.
func interrupted(ctx context.Context, err error) (interrupted bool, failure error) {
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return true, nil
	}
	return false, err
}
