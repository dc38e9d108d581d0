// Logging what anybody on the network can cause, or what stays wrong: rarely.

package admin

import (
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
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

// sparingCore logs what net/http reports, such as handshakes that fail.
type sparingCore struct {
	zapcore.Core
	*sparing
}

// Check implements zapcore.Core.
func (c sparingCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if _, due := c.due(); !due {
		return checked
	}
	return c.Core.Check(entry, checked)
}

// logSparingly gives a server of net/http a logger at the level warn.
func logSparingly(server *http.Server, log *zap.Logger) {
	log = log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return sparingCore{c, &sparing{}} }))
	var err error
	if server.ErrorLog, err = zap.NewStdLogAt(log, zap.WarnLevel); err != nil {
		panic(err) // there is no such level
	}
}

// faults are the errors of what delivery does not depend on, such as a token's file. Each is logged
// when it changes, not at every request.
type faults struct {
	mu   sync.Mutex
	said map[string]string // by name; none: it works
}

// report logs an error that is new; nil clears it.
func (f *faults) report(log *zap.Logger, name string, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said[name] == why {
		return
	}
	if f.said == nil {
		f.said = map[string]string{}
	}
	if f.said[name] = why; why != "" {
		log.Warn("admin access is limited, delivery goes on", zap.String("reason", why))
	}
}
