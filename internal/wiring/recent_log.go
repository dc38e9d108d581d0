// The last warnings and errors of the log, in memory.

package wiring

import (
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap/zapcore"

	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// What is kept of the log, whatever is logged.
const (
	recentLines = 20
	recentBytes = 1000 // of a line
)

// RecentLog keeps the last warnings and errors, as people read them. They are lines of the log, so
// no secret is in them.
type RecentLog struct {
	mu    sync.Mutex
	lines []string
}

// core writes to it what is at least a warning, whatever log.level is.
func (r *RecentLog) core() zapcore.Core {
	return zapcore.NewCore(newEncoder("console"), zapcore.AddSync(r), zapcore.WarnLevel)
}

// Write implements io.Writer; zap calls it once for each line.
func (r *RecentLog) Write(line []byte) (int, error) {
	text := printable.Line(strings.TrimSpace(strings.ReplaceAll(string(line[:min(len(line), recentBytes)]), "\t", "  ")))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lines = append(r.lines, text); len(r.lines) > recentLines {
		r.lines = slices.Delete(r.lines, 0, 1)
	}
	return len(line), nil
}

// Lines are what is kept, the newest last.
func (r *RecentLog) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.lines...)
}
