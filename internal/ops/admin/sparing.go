// Logging what anybody on the network can cause: rarely.

package admin

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// sparing lets one line through in logEvery. Without it a loop of bad requests fills the disk that
// holds the log.
type sparing struct {
	mu   sync.Mutex
	last time.Time
	more int // held back since
}

const logEvery = 10 * time.Second

// due reports whether a line may be logged now, and how many were not since the last one.
func (s *sparing) due() (more int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.last.IsZero() || now.Sub(s.last) >= logEvery {
		more, s.more, s.last = s.more, 0, now
		return more, true
	}
	s.more++
	return 0, false
}

// serverLog takes what net/http logs, such as handshakes that fail.
type serverLog struct {
	sparing
	log *zap.Logger
}

// Write implements io.Writer for log.Logger, which calls it once a line.
func (s *serverLog) Write(line []byte) (int, error) {
	if more, due := s.due(); due {
		s.log.Warn("admin server", zap.ByteString("error", line), zap.Int("more_since", more))
	}
	return len(line), nil
}
