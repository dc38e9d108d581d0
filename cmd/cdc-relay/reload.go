// SIGHUP: the configuration is read again.

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// catchHangups makes SIGHUP harmless from now until the process has ended: it would end the relay
// while it starts, drains, or holds after an end for good. One that comes early waits for reload.
func catchHangups() <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// reload takes over what can change in a running relay: the level of the log, and passwords written
// in the configuration, which the next connect uses. A configuration that is faulty, or half
// written, changes nothing.
type reload struct {
	load    func() (*config.Config, error)
	running *config.Config
	level   zap.AtomicLevel
	log     *zap.Logger
}

// run ends with ctx. Nobody waits for it: a configuration that is a pipe may never end.
func (r *reload) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			r.once()
		}
	}
}

func (r *reload) once() {
	again, err := r.load()
	if err != nil {
		r.log.Error("read configuration again failed: nothing has changed", zap.Error(err))
		return
	}
	renewed, needRestart := r.running.Renew(again)
	wiring.SetLevel(r.level, r.running.Log)
	r.log.Info("configuration read again", zap.String("log_level", r.running.Log.Level), zap.Strings("renewed", renewed))
	if len(needRestart) > 0 {
		r.log.Warn("these keys need a restart", zap.Strings("keys", needRestart))
	}
}
