// Sampling of log lines.

package wiring

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// sampled writes of the lines of one level and message at most linesPerSecond: a fault of a
// thousand destinations is not a thousand lines. The number of the lines left out is logged about
// once a second, and at the end. Lines of levels above error are always written, and so are those
// of Unsampled.
type sampled struct {
	zapcore.Core              // zap's sampler
	all          zapcore.Core // without it
	dropped      *dropped     // shared with the cores that With makes
}

const linesPerSecond = 10

// dropped counts the lines left out and not reported yet.
type dropped struct {
	mu       sync.Mutex
	lines    int
	like     string // the message of the last of them
	reported int64  // Unix second of the last report
}

func sample(core zapcore.Core) zapcore.Core {
	d := &dropped{}
	count := func(e zapcore.Entry, decision zapcore.SamplingDecision) {
		if decision&zapcore.LogDropped != 0 {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.lines, d.like = d.lines+1, e.Message
		}
	}
	return sampled{zapcore.NewSamplerWithOptions(core, time.Second, linesPerSecond, 0, zapcore.SamplerHook(count)), core, d}
}

// Unsampled returns the logger without sampling, for the messages that say why relaying ends: zap's
// sampler distinguishes messages by a hash, so a flood of another message could hide them.
func Unsampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		if s, ok := core.(sampled); ok {
			return s.all
		}
		return core
	}))
}

// With implements zapcore.Core.
func (s sampled) With(fields []zapcore.Field) zapcore.Core {
	return sampled{s.Core.With(fields), s.all.With(fields), s.dropped}
}

// Check implements zapcore.Core.
func (s sampled) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level > zapcore.ErrorLevel {
		return s.all.Check(e, to)
	}
	_ = s.report(e.Time, false) //nolint:errcheck // a log that cannot be written has nowhere to say so
	return s.Core.Check(e, to)
}

// Sync implements zapcore.Core. It reports what is left.
func (s sampled) Sync() error {
	return errors.Join(s.report(time.Now(), true), s.Core.Sync())
}

// report logs how many lines were left out: in another second than the last report, or now.
func (s sampled) report(at time.Time, now bool) error {
	s.dropped.mu.Lock()
	lines, like := s.dropped.lines, s.dropped.like
	if lines == 0 || !now && s.dropped.reported == at.Unix() {
		s.dropped.mu.Unlock()
		return nil
	}
	s.dropped.lines, s.dropped.reported = 0, at.Unix()
	s.dropped.mu.Unlock()
	return s.all.Write(zapcore.Entry{Level: zapcore.WarnLevel, Time: at, Message: "log lines left out"},
		[]zapcore.Field{zap.Int("lines", lines), zap.String("like", like)})
}
