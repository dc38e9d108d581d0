// The log lines about a broker that is away: when that begins, each minute while it lasts, and when
// it ends.

package sink

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// remindEvery is how often a line says that a broker is still away.
const remindEvery = time.Minute

// OutageLog logs that the broker is away, again each minute, and how long it was away when it is
// back. Its methods may be called concurrently.
type OutageLog struct {
	log  *zap.Logger
	back string

	mu     sync.Mutex
	since  time.Time // zero while the broker is not away
	why    string
	remind *time.Timer // nil while the broker is not away
	closed bool
}

// NewOutageLog makes an OutageLog. back is the text of the line when the broker is reached.
func NewOutageLog(log *zap.Logger, back string) *OutageLog {
	return &OutageLog{log: log, back: back}
}

// Away logs why the broker is away. It is called when it goes away, and when the reason changes.
func (l *OutageLog) Away(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.Warn("broker unavailable", zap.String("reason", why))
	l.why = why
	if l.since.IsZero() && !l.closed {
		l.since = time.Now()
		l.remind = time.AfterFunc(remindEvery, l.stillAway)
	}
}

func (l *OutageLog) stillAway() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remind == nil { // the broker is back, or the log was closed, after the timer fired
		return
	}
	l.log.Warn("broker still unavailable", l.away(), zap.String("reason", l.why))
	l.remind.Reset(remindEvery)
}

// away returns the log field with how long the broker has been away.
func (l *OutageLog) away() zap.Field {
	return zap.Duration("away", time.Since(l.since).Round(time.Millisecond))
}

// Back logs that the broker is reached, and after an outage also how long that was.
func (l *OutageLog) Back(fields ...zap.Field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() {
		fields = append(fields, l.away())
	}
	l.end()
	l.log.Info(l.back, fields...)
}

// Close ends the reminders when the sink stops.
func (l *OutageLog) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.closed = true
}

func (l *OutageLog) end() {
	if l.remind != nil {
		l.remind.Stop()
	}
	l.remind, l.since = nil, time.Time{}
}
