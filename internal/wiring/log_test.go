package wiring

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

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
		log, _ := NewLogger(config.Log{Level: name, Format: "json"})
		if !log.Core().Enabled(want) || log.Core().Enabled(want-1) {
			t.Errorf("%s gives %s", name, log.Level())
		}
	}
}

// Texts of brokers and of events cannot write to the terminal that shows the log.
func TestLogHasNoControlCharacters(t *testing.T) {
	const attack = "a\x1b]0;x\a \u009b31m \x7f \u202e \r\n{} \xff\x9b"
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		log := zap.New(zapcore.NewCore(newEncoder(format), logFile(&out), zap.InfoLevel)).Named(attack).With(zap.String("host", attack))
		log.Warn("refused", zap.Error(errors.New(attack)), zap.String(attack, attack), zap.ByteString("raw", []byte(attack)), zap.Any("list", []string{attack}))
		line, rest, _ := strings.Cut(out.String(), "\n")
		if format == "json" && rest != "" {
			t.Errorf("%s: more than one line: %q", format, rest)
		}
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 || !utf8.ValidString(out.String()) {
			t.Errorf("%s: %q", format, line)
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
