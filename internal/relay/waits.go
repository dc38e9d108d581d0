// What the line logs of pauses, and the waiting times of rejected events.

package relay

import (
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// waits are the waiting times of rejected events.
type waits struct {
	min, max time.Duration
	jitter   func(time.Duration) time.Duration
}

// backoff is the wait after the attempt-th rejection (from 1). It is exponential with full jitter,
// so that many rows that were rejected at the same moment do not come back at the same moment. It
// is never 0, because 0 means that the row does not wait for a time.
func (w waits) backoff(attempt int) time.Duration {
	top := w.max
	// 32 doublings are past any sensible maximum, and do not overflow
	if n := attempt - 1; n < 32 && w.min<<n < w.max {
		top = w.min << n
	}
	return max(w.jitter(top), time.Millisecond)
}

// patience is the wait of a row that its destination rejected, while the destination is not paused.
// No attempt is spent on it, so the wait grows with the row's age instead.
func (w waits) patience(age time.Duration) time.Duration {
	return max(w.jitter(min(max(age, w.min), w.max)), time.Millisecond)
}

func (l *Line) logPause(p sink.Paused) {
	fields := []zap.Field{zap.String("destination", p.Destination), zap.String("reason", string(p.Reason)), zap.String("fault", p.Text)}
	if p.Fix != "" {
		fields = append(fields, zap.String("fix", p.Fix))
	}
	l.log.Warn("destination paused: its events wait in the retry table, others go on", fields...)
}

func (l *Line) logPauseEnd(p sink.Paused, forgotten bool, now time.Time) {
	if forgotten {
		l.log.Info("destination no longer paused: none of its events is left in the retry table", zap.String("destination", p.Destination))
		return
	}
	l.log.Info("destination accepts again", zap.String("destination", p.Destination), zap.Duration("paused", now.Sub(p.Since).Round(time.Millisecond)))
}

// spin is the wait after so many calls in a row (from 0) that failed at once. It prevents a busy
// loop over a sink that does not wait itself.
func (w waits) spin(fails int) time.Duration {
	d := minSpin << min(fails, 10)
	d = min(d, maxSpin)
	return d - d/5 + w.jitter(2*d/5)
}

const (
	minSpin = 50 * time.Millisecond
	maxSpin = time.Second
)
