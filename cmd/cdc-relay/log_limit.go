package main

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// limited is a log of which each kind of line, those with one message and level, is written a few times a second at the most: a
// fault of a thousand destinations is not a thousand lines. What was left out is told with the next line of any kind in a later
// second, and at the end.
type limited struct {
	zapcore.Core
	kinds *kinds // shared with the cores that With makes
}

const (
	linesPerSecond = 10
	maxKinds       = 1000 // of messages that are told apart; there are not a hundred, but for those of the HTTP server, which have addresses
)

// kinds count lines.
type kinds struct {
	mu     sync.Mutex
	second int64        // Unix; what counts is of it
	counts map[kind]int // lines in it
	silent map[kind]int // lines that were left out, and not told yet
}

type kind struct {
	level   zapcore.Level
	message string
}

func limit(core zapcore.Core) zapcore.Core {
	return limited{core, &kinds{counts: map[kind]int{}, silent: map[kind]int{}}}
}

// With implements zapcore.Core.
func (l limited) With(fields []zapcore.Field) zapcore.Core {
	return limited{l.Core.With(fields), l.kinds}
}

// Check implements zapcore.Core.
func (l limited) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(e.Level) {
		return to.AddCore(e, l)
	}
	return to
}

// Write implements zapcore.Core.
func (l limited) Write(e zapcore.Entry, fields []zapcore.Field) error {
	write, untold := l.kinds.count(e)
	err := l.tell(e.Time, untold)
	if !write {
		return err
	}
	return cmp.Or(err, l.Core.Write(e, fields))
}

// Sync implements zapcore.Core. Nothing is left untold after it.
func (l limited) Sync() error {
	l.kinds.mu.Lock()
	untold := l.kinds.take()
	l.kinds.mu.Unlock()
	return cmp.Or(l.tell(time.Now(), untold), l.Core.Sync())
}

// tell writes how many lines of each kind were left out.
func (l limited) tell(at time.Time, untold map[kind]int) (err error) {
	order := slices.SortedFunc(maps.Keys(untold), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.message, b.message))
	})
	for _, k := range order {
		e := zapcore.Entry{Level: k.level, Time: at, Message: "more lines like others of a moment ago were left out"}
		err = cmp.Or(err, l.Core.Write(e, []zapcore.Field{zap.String("like", k.message), zap.Int("lines", untold[k])}))
	}
	return err
}

// count counts a line. It reports whether it is to be written, and which lines of earlier seconds were not.
func (k *kinds) count(e zapcore.Entry) (write bool, untold map[kind]int) {
	if e.Level > zapcore.ErrorLevel {
		return true, nil // these are the last words
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := e.Time.Unix(); now != k.second {
		k.second = now
		untold = k.take()
		clear(k.counts)
	}
	of := kind{e.Level, e.Message}
	if _, known := k.counts[of]; !known && len(k.counts) >= maxKinds {
		of = kind{e.Level, "any other"}
	}
	k.counts[of]++
	if k.counts[of] <= linesPerSecond {
		return true, untold
	}
	k.silent[of]++
	return false, untold
}

// take takes what was left out and not told.
func (k *kinds) take() map[kind]int {
	if len(k.silent) == 0 {
		return nil
	}
	untold := k.silent
	k.silent = map[kind]int{}
	return untold
}
