package main

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// The level that a configuration read again has holds for the lines that come.
func TestReloadSetsTheLevel(t *testing.T) {
	emptyDirectory(t)
	const relay = "source: {url: postgres://h/d}\nsink: {stdout: {}}\n"
	writeFile(t, "was", relay)
	writeFile(t, "is", relay+"log: {level: debug}\n")
	running, err := config.Load("was", nil)
	if err != nil {
		t.Fatal(err)
	}
	level := zap.NewAtomicLevelAt(zap.InfoLevel)
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core, zap.IncreaseLevel(level))
	log.Debug("before")
	(&reload{load: func() (*config.Config, error) { return config.Load("is", nil) }, running: running, level: level, log: log}).once()
	log.Debug("after")
	if n := logs.FilterLevelExact(zapcore.DebugLevel).FilterMessage("after").Len(); n != 1 || logs.FilterMessage("before").Len() != 0 {
		t.Errorf("the log has %v", logs.All())
	}
}
