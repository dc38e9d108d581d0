// The last warnings and errors of the log, in memory.

package wiring

import (
	"fmt"
	"maps"
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

// The fields of a line that name an event.
const (
	logPosition = "position"
	logEventID  = "event_id"
)

// RecentLog keeps the last warnings and errors, as people read them. They are lines of the log, so
// no secret is in them. A line that comes again takes the place of its former one: the reminder of
// an outage does not push out what else happened.
type RecentLog struct {
	mu    sync.Mutex
	lines []recentLine // the newest last
}

type recentLine struct {
	text string
	same string // what the lines have in common that are one line again and again
	// it names an event: a broker or the database may have quoted of its contents
	ofEvent bool
}

// Lines returns the kept lines, the newest last.
func (r *RecentLog) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []string{}
	for _, line := range r.lines {
		out = append(out, line.text)
	}
	return out
}

// ForgetEvents drops the lines that name an event: the contents of one were removed.
func (r *RecentLog) ForgetEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = slices.DeleteFunc(r.lines, func(line recentLine) bool { return line.ofEvent })
}

func (r *RecentLog) add(line recentLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = slices.DeleteFunc(r.lines, func(former recentLine) bool { return former.same == line.same })
	if r.lines = append(r.lines, line); len(r.lines) > recentLines {
		r.lines = slices.Delete(r.lines, 0, 1)
	}
}

// core writes to it what is at least a warning, whatever log.level is.
func (r *RecentLog) core() zapcore.Core { return &recentCore{log: r, encoder: newEncoder("console")} }

// recentCore implements zapcore.Core.
type recentCore struct {
	log     *RecentLog
	encoder zapcore.Encoder
	fields  []zapcore.Field // of all lines
}

// Enabled implements zapcore.LevelEnabler.
func (*recentCore) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (c *recentCore) With(fields []zapcore.Field) zapcore.Core {
	return &recentCore{log: c.log, encoder: c.encoder, fields: append(slices.Clip(c.fields), fields...)}
}

// Check implements zapcore.Core.
func (c *recentCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Sync implements zapcore.Core.
func (*recentCore) Sync() error { return nil }

// Write implements zapcore.Core.
func (c *recentCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	fields = append(slices.Clip(c.fields), fields...)
	encoded, err := c.encoder.EncodeEntry(entry, fields)
	if err != nil {
		return err
	}
	defer encoded.Free()
	text := encoded.Bytes()
	line := recentLine{text: printable.Line(strings.TrimSpace(strings.ReplaceAll(string(text[:min(len(text), recentBytes)]), "\t", "  ")))}
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
		line.ofEvent = line.ofEvent || f.Key == logPosition || f.Key == logEventID
	}
	line.same = sameLine(entry, values.Fields)
	c.log.add(line)
	return nil
}

// sameLine is a line without its time, and without the numbers that it counts or measures.
func sameLine(entry zapcore.Entry, values map[string]any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %q", entry.Level, entry.LoggerName, entry.Message)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch value := values[key].(type) {
		case string, bool, []any:
			fmt.Fprintf(&b, " %q:%q", key, fmt.Sprint(value))
		}
		if b.Len() > recentBytes {
			break
		}
	}
	return b.String()
}
