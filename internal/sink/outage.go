// The log lines about a broker that is away: when that begins, and when it ends.

package sink

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// OutageLog logs that the broker is away, and how long it was away when it is back. Its methods may
// be called concurrently.
type OutageLog struct {
	log  *zap.Logger
	back string

	mu    sync.Mutex
	since time.Time // zero while the broker is not away
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
	if l.since.IsZero() {
		l.since = time.Now()
	}
}

// Back logs that the broker is reached, and after an outage also how long that was.
func (l *OutageLog) Back(fields ...zap.Field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() {
		fields = append(fields, zap.Duration("away", time.Since(l.since).Round(time.Millisecond)))
	}
	l.since = time.Time{}
	l.log.Info(l.back, fields...)
}
