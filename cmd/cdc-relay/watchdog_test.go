package main

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Each loop of the retry table is watched under its own name, and /healthz asks for it.
func TestLoopsAreWatched(t *testing.T) {
	emptyDirectory(t)
	c, err := config.Load("", []string{"CDC_RELAY_SOURCE__URL=postgres://h/d", "CDC_RELAY_SINK__STDOUT={}"})
	if err != nil {
		t.Fatal(err)
	}
	v := newProcess(c, command.Build{})
	v.watchdog = newWatchdog(time.Minute)
	stuck := func() (names []string) {
		for _, beat := range v.watchdog.all() {
			if why := beat.Stuck(time.Now().Add(2 * time.Minute)); why != "" {
				names = append(names, why)
			}
		}
		return names
	}
	hooks := retryTableConfig(c, v, nil, source.Term{}, zap.NewNop()).Hooks
	for _, loop := range []struct {
		hook func(bool)
		of   *ops.Heartbeat
	}{{hooks.Writer, v.watchdog.writer}, {hooks.Feeder, v.watchdog.feeder}, {hooks.Stats, v.watchdog.stats}} {
		loop.hook(true)
		if got := stuck(); len(got) != 1 || loop.of.Stuck(time.Now().Add(2*time.Minute)) == "" {
			t.Errorf("one is at work: %q", got)
		}
		loop.hook(false)
		if got := stuck(); len(got) != 0 {
			t.Errorf("none is at work: %q", got)
		}
	}
}
