// The graphs of status --watch: the last minutes, in the room that the text leaves on the screen.

package operate

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// maxHistory is how many looks are remembered. Few terminals have more columns.
const maxHistory = 500

// history has the values of the last looks, the oldest first. A value that was not known is
// negative.
type history struct {
	rate, p99, lag, inFlight []float64
}

// add adds the values of a status; nil means that the relay did not answer.
func (h *history) add(s *ops.Status) {
	rate, p99, lag, inFlight := -1.0, -1.0, -1.0, -1.0
	if s != nil {
		rate, inFlight = s.Rates.PublishedPerSecond, float64(s.InFlight.Events)
		if s.Slot.LagSeconds != nil {
			lag = *s.Slot.LagSeconds
		}
		if s.Rates.LatencyP99Seconds != nil {
			p99 = *s.Rates.LatencyP99Seconds
		}
	}
	for list, value := range map[*[]float64]float64{&h.rate: rate, &h.p99: p99, &h.lag: lag, &h.inFlight: inFlight} {
		*list = append(*list, value)
		*list = (*list)[max(0, len(*list)-maxHistory):]
	}
}

// The columns of a graph: a label as in the status, the bars, and the value of the highest bar.
const (
	labelWidth = 11
	scaleWidth = 16
	minBars    = 10
	maxRows    = 4 // of one graph
)

// graphs returns at most height lines of at most width columns. Depending on the room these are no
// lines, a clock, or four graphs below each other and a clock.
func (h *history) graphs(width, height int, now time.Time, every time.Duration) (out []string) {
	bars := width - labelWidth - scaleWidth
	if height < 1 || bars < minBars {
		return nil
	}
	if rows := min((height-2)/4, maxRows); rows > 0 {
		out = append(out, "")
		out = append(out, graph("rate", h.rate, bars, rows, func(v float64) string { return fmt.Sprintf("%.1f/s", v) })...)
		out = append(out, graph("p99", h.p99, bars, rows, latencyText)...)
		out = append(out, graph("lag", h.lag, bars, rows, func(v float64) string { return command.Age(time.Duration(v * float64(time.Second))) })...)
		out = append(out, graph("in flight", h.inFlight, bars, rows, func(v float64) string { return command.Thousands(uint64(v)) })...)
	}
	clock := fmt.Sprintf("%-11s%s UTC, each column is %s", "time", now.UTC().Format(time.TimeOnly), every)
	return append(out, command.Cut(clock, width, ""))
}

// latencyText writes a latency, which is a few milliseconds as a rule.
func latencyText(seconds float64) string {
	switch {
	case seconds < 0.01:
		return fmt.Sprintf("%.1f ms", seconds*1000)
	case seconds < 1:
		return fmt.Sprintf("%.0f ms", seconds*1000)
	}
	return command.Age(time.Duration(seconds * float64(time.Second)))
}

// graph draws the newest values at the right, in steps of an eighth of a character. The scale
// begins at 0, and its top is the highest value, which is printed behind the graph.
func graph(label string, values []float64, bars, rows int, show func(float64) string) (out []string) {
	values = values[max(0, len(values)-bars):]
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	eighths := []rune(" ▁▂▃▄▅▆▇█")
	for row := rows - 1; row >= 0; row-- {
		var b strings.Builder
		fmt.Fprintf(&b, "%-11s", command.If(row == rows-1, label))
		b.WriteString(strings.Repeat(" ", bars-len(values)))
		for _, v := range values {
			level := 0
			if top > 0 && v > 0 {
				level = max(1, int(v/top*float64(8*rows)+0.5))
			}
			b.WriteRune(eighths[min(max(level-8*row, 0), 8)])
		}
		if row == rows-1 {
			b.WriteString(" max " + show(top))
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}
