// What the relay does for the host that it runs on: it tells systemd about its state, and limits
// its processors while it is nearly idle.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/operate"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

const (
	stateInterval = time.Second // between two reports of the state
	// how much longer than the grace a stop may take on a slow machine
	stopMargin = 15 * time.Second
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

// setEnded notes why relaying has ended, for the last report.
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

// state returns the line about the state, or "" when it was reported already.
func (s *systemd) state() string {
	now := s.status()
	if why := s.ended.Load(); why != nil {
		now.State, now.Why = ops.StateStopped, *why
	}
	line := "STATUS=" + command.Clean(strings.Join(strings.Fields(operate.StateText(&now)), " "))
	if line == s.lastState {
		return ""
	}
	s.lastState = line
	return line
}

// feed feeds the watchdog unless a loop is stuck. systemd ends a relay that is not fed with
// SIGABRT, upon which the relay prints where every goroutine is, and starts it again.
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

// processors lets the process use one processor while it needs little, and all that it may have as
// soon as it needs more.
//
// A live event is a series of short wakes: of the reader, the lane and the client library. With two
// processors Go's scheduler starts a thread for the second one at each wake, which looks for work,
// finds none and is put to sleep again; its monitor wakes with them. That takes processor time from
// whatever runs beside the relay, and gains nothing.
//
// A backlog for a slow broker uses little, too. But then the next events should be decoded while
// the confirms of the last ones are handled, so that the broker always has something to do. With
// one processor a backlog for RabbitMQ takes longer, and not less processor time. So a line without
// room has all processors.
//
// When GOMAXPROCS is set, that value is used instead.
type processors struct {
	used func() time.Duration // processor time since the process began
	full func() bool          // the line has no room for the next event
	set  func(wide bool)
	wide bool
	// of the present processorsPatience: what was used, how many looks there were, and in how many
	// of them the line was full
	sum          time.Duration
	looks, fulls int
}

// When the number changes. A backlog uses nearly a whole processor at once. A live stream is
// bursty, above all on a crowded machine, so what it uses is averaged: a burst must not keep
// several processors, with which the same work takes more time: so what is little with several is
// less with one. Much is far above that average, and still less than the share that other programs
// leave to one thread. A change stops the world for some ten microseconds.
const (
	processorsEvery    = 100 * time.Millisecond
	processorsMuch     = processorsEvery / 2 // used in one look
	processorsPatience = time.Second         // or as much as Little in it
	processorsLittle   = processorsPatience / 3
)

func newProcessors(full func() bool) *processors {
	return &processors{used: processorTime, full: full, set: setProcessors, wide: true}
}

// processorsSettled reports whether the number of processors is fixed already: by GOMAXPROCS, or
// because there is only one.
func processorsSettled() bool { return os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 }

// Run looks at the used time until ctx is done.
func (p *processors) Run(ctx context.Context) error {
	tick := time.NewTicker(processorsEvery)
	defer tick.Stop()
	before, at := p.used(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		used, now := p.used(), time.Now()
		if took := now.Sub(at); took > 0 {
			p.look(time.Duration(float64(used-before) / float64(took) * float64(processorsEvery)))
		}
		before, at = used, now
	}
}

// look takes what was used in one processorsEvery, and changes the number of processors if that is
// due.
func (p *processors) look(used time.Duration) {
	p.sum, p.looks = p.sum+used, p.looks+1
	if p.full() {
		p.fulls++
	}
	over := time.Duration(p.looks)*processorsEvery >= processorsPatience
	switch {
	case !p.wide && (p.fulls > 0 || used >= processorsMuch || over && p.sum >= processorsLittle):
		p.wide = true
		p.set(true)
	case p.wide && over && p.fulls == 0 && p.sum < processorsLittle:
		p.wide = false
		p.set(false)
	case !over:
		return
	}
	p.sum, p.looks, p.fulls = 0, 0, 0
}

// setProcessors sets one processor or Go's own choice, the machine's or the container's, which is
// followed when it changes.
func setProcessors(wide bool) {
	if wide {
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(1)
	}
}

// processorTime returns the processor time of the process, in user and system mode.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // it fails only for wrong arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
