package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A flood of one kind of line is some lines a second, which says how many more there were; other kinds are not concerned.
func TestLogIsLimitedByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		log := zap.New(limit(core))
		for i := range 1000 {
			log.With(zap.String("part", "of it")).Warn("destination paused", zap.Int("i", i))
			log.Debug("a detail")
		}
		log.Error("stopped")
		if n := logs.FilterMessage("destination paused").Len(); n != linesPerSecond {
			t.Errorf("%d lines of a flood in a second, want %d", n, linesPerSecond)
		}
		if logs.FilterMessage("stopped").Len() != 1 || logs.FilterMessage("a detail").Len() != linesPerSecond {
			t.Error("another kind of line is concerned")
		}
		if first := logs.FilterMessage("destination paused").All()[0].ContextMap(); first["i"] != int64(0) || first["part"] != "of it" {
			t.Errorf("the first line is %v", first)
		}

		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
		logs.TakeAll()
		log.Info("streaming")
		var got []string
		for _, l := range logs.TakeAll() {
			got = append(got, fmt.Sprint(l.Level, " ", l.Message, " ", l.ContextMap()["like"], " ", l.ContextMap()["lines"]))
		}
		const left = "more lines like others of a moment ago were left out"
		want := fmt.Sprint([]string{"debug " + left + " a detail 990", "warn " + left + " destination paused 990", "info streaming <nil> <nil>"})
		if fmt.Sprint(got) != want {
			t.Errorf("the next line comes with %v, want %s", got, want)
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

// What ends the process is never left out.
func TestLastWordsAreNotLimited(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(limit(core), zap.WithPanicHook(zapcore.WriteThenGoexit))
	for range 10 * linesPerSecond {
		done := make(chan struct{})
		go func() {
			defer close(done)
			log.Panic("the end")
		}()
		<-done
	}
	if n := logs.Len(); n != 10*linesPerSecond {
		t.Errorf("%d of %d last words were written", n, 10*linesPerSecond)
	}
}

// TestLogOfManyKinds: messages that are made from data could not fill the memory.
func TestLogOfManyKinds(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	l := limit(core).(limited)
	for i := range 2 * maxKinds {
		if err := l.Write(zapcore.Entry{Message: fmt.Sprint("message ", i), Time: time.Unix(1, 0)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if logs.Len() != maxKinds+linesPerSecond || len(l.kinds.counts) > maxKinds+1 {
		t.Errorf("%d lines of %d, %d kinds are remembered", logs.Len(), 2*maxKinds, len(l.kinds.counts))
	}
}
