// Log lines about failures of the export.

package tracing

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// exportLog logs failures of the export: at most a line a minute, and one line when spans are
// exported again.
type exportLog struct {
	log *zap.Logger

	mu         sync.Mutex
	since      time.Time // zero: nothing is wrong
	suppressed int       // errors since
}

const exportLogEvery = time.Minute

func (t *exportLog) failure(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.since.IsZero() && now.Sub(t.since) < exportLogEvery {
		t.suppressed++
		return
	}
	fields := []zap.Field{zap.Error(err)}
	if t.suppressed > 0 {
		fields = append(fields, zap.Int("and_others_before", t.suppressed))
	}
	t.since, t.suppressed = now, 0
	t.log.Warn("spans are not exported, events flow on", fields...)
}

// recovery says that spans are exported again. A failure within the same minute is not logged
// again.
func (t *exportLog) recovery() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() || time.Since(t.since) < exportLogEvery {
		return
	}
	t.since, t.suppressed = time.Time{}, 0
	t.log.Info("spans are exported again")
}
