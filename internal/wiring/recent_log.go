// The last warnings and errors of the log, kept in memory so that the status and the console can
// show them.

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

// The bounds of a RecentLog.
const (
	recentLines = 20
	recentBytes = 1000 // of a line; the rest is cut
)

// The keys of log fields that name an event.
const (
	logPosition = "position"
	logEventID  = "event_id"
)

// RecentLog keeps the last warnings and errors of the log, in the form that people read. It has no
// secrets in it, because log lines have none. A line that comes again takes the place of its former
// one, so that a broker that comes and goes does not push out other lines.
type RecentLog struct {
	mu    sync.Mutex
	lines []recentLine // the newest last
}

type recentLine struct {
	text string
	same string // what a line has in common with its repetitions
	// it names an event: the broker or the database may have quoted the event's contents in it
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

// ForgetEvents drops the lines that name an event. It is called when the contents of an event were
// removed, because a line may quote them.
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

// core returns the zap core that adds each warning and error to the RecentLog, whatever log.level
// is.
func (r *RecentLog) core() zapcore.Core { return &recentCore{log: r, encoder: newEncoder("console")} }

// recentCore implements zapcore.Core for a RecentLog.
type recentCore struct {
	log     *RecentLog
	encoder zapcore.Encoder
	fields  []zapcore.Field // the fields that every line has
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

// sameLine returns what identifies a line when it comes again: its level, logger, message and
// fields, without its time and without numbers, which count or measure.
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
