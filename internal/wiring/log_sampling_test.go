package wiring

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A flood of one message is logged as a few lines a second, with the number left out. Other
// messages are not affected.
func TestLogIsSampledByMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		log := zap.New(sample(core))
		for i := range 1000 {
			log.With(zap.String("part", "of it")).Warn("destination paused", zap.Int("i", i))
		}
		log.Error("stopped")
		if n := logs.FilterMessage("destination paused").Len(); n != linesPerSecond {
			t.Errorf("%d lines of a flood in a second, want %d", n, linesPerSecond)
		}
		if logs.FilterMessage("stopped").Len() != 1 {
			t.Error("another message is concerned")
		}
		if first := logs.FilterMessage("destination paused").All()[0].ContextMap(); first["i"] != int64(0) || first["part"] != "of it" {
			t.Errorf("the first line is %v", first)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
		log.Info("streaming")
		var left int64
		for _, l := range logs.FilterMessage("log lines left out").All() {
			left += l.ContextMap()["lines"].(int64)
			if l.ContextMap()["like"] != "destination paused" {
				t.Errorf("it says %v", l.ContextMap())
			}
		}
		if left != 1000-linesPerSecond || logs.FilterMessage("streaming").Len() != 1 {
			t.Errorf("%d lines are said to be left out", left)
		}
		for range linesPerSecond + 1 {
			log.Warn("destination paused")
		}
		logs.TakeAll()
		if err := log.Sync(); err != nil {
			t.Error(err)
		}
		if end := logs.TakeAll(); len(end) != 1 || end[0].ContextMap()["lines"] != int64(1) {
			t.Errorf("at the end it says %v", end)
		}
	})
}

// What ends the process is never left out: neither a panic, nor what is logged as the reason.
func TestLastMessagesAreNotSampled(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(sample(core), zap.WithPanicHook(zapcore.WriteThenGoexit))
	last := Unsampled(log.With(zap.String("slot", "a")))
	for range 10 * linesPerSecond {
		last.Error("stopped")
		done := make(chan struct{})
		go func() {
			defer close(done)
			log.Panic("the end")
		}()
		<-done
	}
	for _, message := range []string{"stopped", "the end"} {
		if n := logs.FilterMessage(message).Len(); n != 10*linesPerSecond {
			t.Errorf("%d of %d last messages were written", n, 10*linesPerSecond)
		}
	}
	if logs.FilterMessage("stopped").All()[0].ContextMap()["slot"] != "a" {
		t.Error("a field is lost")
	}
}
