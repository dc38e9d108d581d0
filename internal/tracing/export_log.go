package tracing

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// exportLog logs what is wrong with the export: a line a minute at the most, however often it fails, and one when that is over.
type exportLog struct {
	log *zap.Logger

	mu     sync.Mutex
	said   time.Time // zero: nothing is wrong
	silent int       // errors since
}

const exportLogEvery = time.Minute

func (t *exportLog) failure(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.said.IsZero() && now.Sub(t.said) < exportLogEvery {
		t.silent++
		return
	}
	fields := []zap.Field{zap.Error(err)}
	if t.silent > 0 {
		fields = append(fields, zap.Int("and_others_before", t.silent))
	}
	t.said, t.silent = now, 0
	t.log.Warn("spans are not exported, events flow on", fields...)
}

// recovery says that spans are exported again. Trouble that comes within the minute is not logged again.
func (t *exportLog) recovery() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said.IsZero() || time.Since(t.said) < exportLogEvery {
		return
	}
	t.said, t.silent = time.Time{}, 0
	t.log.Info("spans are exported again")
}
