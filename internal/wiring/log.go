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

// Of the lines of one level and message so many are written in a second, then every thousandth: a
// fault of a thousand destinations is not a thousand lines.
const (
	linesPerSecond = 10
	thenEach       = 1000
)

// NewLogger writes to stderr, as JSON or for people. No line is logged per event that passes, and a
// repeated fault is logged when it changes.
func NewLogger(c config.Log) *zap.Logger {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		level = zapcore.InfoLevel // never: config accepts only names of levels
	}
	core := zapcore.NewCore(newEncoder(c.Format), zapcore.Lock(os.Stderr), level)
	return zap.New(sample(core), zap.ErrorOutput(zapcore.Lock(os.Stderr)))
}

func sample(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Second, linesPerSecond, thenEach)
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
