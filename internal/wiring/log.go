// The logger.

package wiring

import (
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// The keys that every log line has.
const (
	logTime   = "time"
	logLevel  = "level"
	logName   = "logger"
	logMsg    = "msg"
	logCaller = zapcore.OmitKey
)

// NewLogger writes to stderr, as JSON or for people. No line is logged per event that passes, and a
// repeated fault is logged when it changes. Of a fault that many events or destinations have at
// once, a few lines a second are written.
func NewLogger(c config.Log) *zap.Logger {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		level = zapcore.InfoLevel // never: config accepts only names of levels
	}
	core := zapcore.NewCore(newEncoder(c.Format), zapcore.Lock(os.Stderr), level)
	return zap.New(sample(core), zap.ErrorOutput(zapcore.Lock(os.Stderr)))
}

func newEncoder(format string) zapcore.Encoder {
	keys := zapcore.EncoderConfig{
		TimeKey:        logTime,
		LevelKey:       logLevel,
		NameKey:        logName,
		MessageKey:     logMsg,
		CallerKey:      logCaller,
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeTime:     zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000000Z07:00"),
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: func(d time.Duration, out zapcore.PrimitiveArrayEncoder) { out.AppendString(d.String()) },
	}
	if format == "console" {
		keys.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		keys.ConsoleSeparator = "  "
		return zapcore.NewConsoleEncoder(keys)
	}
	return zapcore.NewJSONEncoder(keys)
}
