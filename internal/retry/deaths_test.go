package retry

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A few dead letters are named each, a flood is not.
func TestDeathsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		d := deaths{of: &Config{Log: zap.New(core)}}
		die := func(n int) {
			row := &Row{N: int64(n), Event: outbox.Event{ID: fmt.Appendf(nil, "e%d", n)}, Class: sink.Permanent, Reason: sink.TooLarge}
			d.tell(row, written(row))
		}
		for n := range 1000 {
			die(n)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
		die(1000)
		lines := logs.All()
		if len(lines) != deathsPerSecond+1 {
			t.Fatalf("%d lines, want %d", len(lines), deathsPerSecond+1)
		}
		first, last := lines[0].ContextMap(), lines[deathsPerSecond].ContextMap()
		if first["event_id"] != "e0" || first["reason"] != "too_large" || first["class"] != "permanent" {
			t.Errorf("the first line says %v", first)
		}
		if last["event_id"] != "e1000" || last["and_others_before"] != int64(1000-deathsPerSecond) {
			t.Errorf("the last line says %v", last)
		}
	})
}
