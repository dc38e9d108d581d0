// Notifications to systemd: ready, state, watchdog.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/cli/status"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

const (
	stateInterval = time.Second      // between two reports of the state
	stopMargin    = 15 * time.Second // beyond the grace: what comes after it, on a slow machine
)

// systemd reports to the service manager what the relay does, for Type=notify and WatchdogSec.
// Without a service manager it does nothing.
//
// Ready means that the process is up and answers /healthz: a standby, or a relay that waits for a
// server, is as ready as can be, and a start timeout must not end it.
type systemd struct {
	grace  time.Duration
	status func() ops.Status
	health func() ops.Health
	log    *zap.Logger

	ended atomic.Pointer[string] // why relaying has ended

	lastState    string // the state that was reported last
	notifyFailed bool   // the last message could not be sent
	unhealthy    bool   // the watchdog was not fed last time
}

// setEnded records why relaying has ended. It is reported last.
func (s *systemd) setEnded(err error) {
	if err != nil {
		why := err.Error()
		s.ended.Store(&why)
	}
}

// Run reports the state until ctx is done. Once reading has ended it reports that the relay is
// stopping.
func (s *systemd) Run(ctx, reading context.Context) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("feed watchdog failed", zap.Error(err))
	}
	s.notify(daemon.SdNotifyReady, s.state())
	tick := time.NewTicker(stateInterval)
	defer tick.Stop()
	var feed <-chan time.Time
	if watchdog > 0 {
		ticker := time.NewTicker(watchdog / 2)
		defer ticker.Stop()
		feed = ticker.C
		s.feed()
	}
	stop := reading.Done()
	for {
		select {
		case <-ctx.Done():
			if stop != nil {
				s.notify(daemon.SdNotifyStopping)
			}
			s.notify(s.state())
			return nil
		case <-stop:
			stop = nil
			s.notify(daemon.SdNotifyStopping, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (s.grace+stopMargin).Microseconds()), s.state())
		case <-tick.C:
			s.notify(s.state())
			// a relay that was frozen recovers in a moment, and the next regular feed may be too
			// late
			if s.unhealthy {
				s.feed()
			}
		case <-feed:
			s.feed()
		}
	}
}

// state is the line for the state; "" when it was reported already.
func (s *systemd) state() string {
	now := s.status()
	if why := s.ended.Load(); why != nil {
		now.State, now.Why = ops.StateStopped, *why
	}
	line := "STATUS=" + output.Clean(strings.Join(strings.Fields(status.StateText(&now)), " "))
	if line == s.lastState {
		return ""
	}
	s.lastState = line
	return line
}

// feed feeds the watchdog unless a loop is stuck. systemd ends a relay that is not fed with
// SIGABRT, upon which it prints where every goroutine is, and restarts it.
func (s *systemd) feed() {
	h := s.health()
	if !h.Healthy && !s.unhealthy {
		s.log.Error("feed watchdog failed", zap.Strings("stuck", h.Stuck))
	}
	if s.unhealthy = !h.Healthy; h.Healthy {
		s.notify(daemon.SdNotifyWatchdog)
	}
}

// notify sends the lines that are not empty.
func (s *systemd) notify(lines ...string) {
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	if len(lines) == 0 {
		return
	}
	sent, err := daemon.SdNotify(false, strings.Join(lines, "\n"))
	if err == nil && !sent {
		err = errors.New("NOTIFY_SOCKET is gone")
	}
	if err != nil && !s.notifyFailed {
		s.log.Warn("notify service manager failed", zap.Error(err))
	}
	s.notifyFailed = err != nil
}
