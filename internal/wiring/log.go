// The logger.

package wiring

import (
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/printable"
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
// repeated fault is logged when it changes. SetLevel changes the level it returns.
func NewLogger(c config.Log) (*zap.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevel()
	SetLevel(level, c)
	core := zapcore.NewCore(newEncoder(c.Format), logFile(os.Stderr), level)
	return zap.New(sample(core), zap.ErrorOutput(logFile(os.Stderr))), level
}

// SetLevel sets a logger's level.
func SetLevel(of zap.AtomicLevel, c config.Log) {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		level = zapcore.InfoLevel // never: config accepts only names of levels
	}
	of.SetLevel(level)
}

// logFile is a file for the lines of a logger, which carry texts of brokers and of events.
func logFile(w io.Writer) zapcore.WriteSyncer {
	return zapcore.Lock(zapcore.AddSync(printable.JSON(w)))
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
