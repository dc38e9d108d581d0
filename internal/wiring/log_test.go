package wiring

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

func TestLogLines(t *testing.T) {
	for _, c := range []struct{ format, want string }{
		{"json", `{"level":"warn","time":"2026-11-20T12:00:00.000000Z","msg":"broker unavailable"}` + "\n"},
		{"console", "12:00:00.000  warn  broker unavailable\n"},
	} {
		line, err := newEncoder(c.format).EncodeEntry(zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Message: "broker unavailable"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if line.String() != c.want {
			t.Errorf("%s: %q, want %q", c.format, line, c.want)
		}
	}
}

func TestLogLevels(t *testing.T) {
	for name, want := range map[string]zapcore.Level{"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel} {
		log := NewLogger(config.Log{Level: name, Format: "json"})
		if !log.Core().Enabled(want) || log.Core().Enabled(want-1) {
			t.Errorf("%s gives %s", name, log.Level())
		}
	}
}

// A flood of one message is logged as a few lines a second. Other messages are not affected.
func TestLogIsSampledByMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		log := zap.New(sample(core))
		for range 1000 {
			log.Warn("destination paused")
		}
		log.Error("stopped")
		if n := logs.FilterMessage("destination paused").Len(); n != linesPerSecond {
			t.Errorf("%d lines of a flood in a second, want %d", n, linesPerSecond)
		}
		if logs.FilterMessage("stopped").Len() != 1 {
			t.Error("another message is concerned")
		}
	})
}
