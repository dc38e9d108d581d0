// The log lines about a broker that is away.

package sink

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// remindEvery is the pause between two lines about a broker that stays away.
const remindEvery = time.Minute

// OutageLog logs that the broker is away, again each minute, and for how long it was when it is
// back. Its methods may be called concurrently.
type OutageLog struct {
	log  *zap.Logger
	back string

	mu     sync.Mutex
	since  time.Time // zero: the broker is not away
	why    string
	remind *time.Timer // nil: the broker is not away
	closed bool
}

// NewOutageLog makes an OutageLog. back is the text of the line about a broker that is reached.
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
	if l.remind == nil { // it is back, or the log is closed, since the timer has fired
		return
	}
	l.log.Warn("broker still unavailable", l.away(), zap.String("reason", l.why))
	l.remind.Reset(remindEvery)
}

// away is how long the broker has been away.
func (l *OutageLog) away() zap.Field {
	return zap.Duration("away", time.Since(l.since).Round(time.Millisecond))
}

// Back logs that the broker is reached. After an outage the line has its length.
func (l *OutageLog) Back(fields ...zap.Field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() {
		fields = append(fields, l.away())
	}
	l.end()
	l.log.Info(l.back, fields...)
}

// Close ends the reminders.
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
