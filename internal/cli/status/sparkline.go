// The history of a watch and its sparklines.

package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
)

// history are the samples of a watch, one per poll, for its sparklines. A value below zero was not
// known.
type history struct {
	lag, wal, rate series

	published uint64    // at the poll before
	startedAt time.Time // of the relay that was counted from
	now       time.Time
}

// samples is how many are kept, and so the widest sparkline.
const samples = 240

const notKnown = -1

func (h *history) add(s *snapshot) {
	lag, wal, rate := float64(notKnown), float64(notKnown), float64(notKnown)
	switch {
	case s.status != nil:
		if s.status.Slot.LagSeconds != nil {
			lag = *s.status.Slot.LagSeconds
		}
		if s.status.Slot.IsFresh(s.status.Now) {
			wal = float64(s.status.Slot.LagBytes)
		}
		rate = h.publishedSince(s)
	case s.database != nil && s.database.SlotExists:
		wal = float64(s.database.LagBytes)
	}
	if s.status == nil {
		h.startedAt = time.Time{}
	}
	h.lag.add(lag)
	h.wal.add(wal)
	h.rate.add(rate)
}

// publishedSince is how many events a second were published since the poll before.
func (h *history) publishedSince(s *snapshot) float64 {
	now, published := s.status.Now, s.status.Totals.Published
	rate := s.status.Rates.PublishedPerSecond
	if h.startedAt.Equal(s.status.StartedAt) && now.After(h.now) && published >= h.published {
		rate = float64(published-h.published) / now.Sub(h.now).Seconds()
	}
	h.startedAt, h.now, h.published = s.status.StartedAt, now, published
	return rate
}

type series []float64

func (s *series) add(v float64) {
	*s = append(*s, v)
	if len(*s) > samples {
		*s = (*s)[1:]
	}
}

func (s series) last() float64 {
	if len(s) == 0 {
		return notKnown
	}
	return s[len(s)-1]
}

// spark draws the newest samples, one a column, scaled to the highest of them. Only zero has the
// lowest bar; an unknown value is a gap.
func (s series) spark(width int) (line string, highest float64) {
	const levels = "▁▂▃▄▅▆▇█"
	shown := s[max(0, len(s)-max(width, 0)):]
	for _, v := range shown {
		highest = max(highest, v)
	}
	steps := []rune(levels)
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", max(width, 0)-len(shown)))
	for _, v := range shown {
		switch {
		case v < 0:
			b.WriteByte(' ')
		case v == 0 || highest == 0:
			b.WriteRune(steps[0])
		default:
			b.WriteRune(steps[1+int(v/highest*float64(len(steps)-2))])
		}
	}
	return b.String(), highest
}

func showSeconds(v float64) string { return output.Age(time.Duration(v * float64(time.Second))) }

func showSparkBytes(v float64) string { return output.Bytes(int64(v)) }

func showRate(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.1f/s", v)
	}
	return output.Thousands(uint64(v)) + "/s"
}
