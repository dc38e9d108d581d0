// How many processors the process uses.

package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// processors gives the process one processor while it needs little of one, and all that it may have
// as soon as it needs more.
//
// A live event is a series of short wakes: the reader's, the lane's, the client library's. With two
// processors Go's scheduler starts a thread for the second at each of them, which looks for work,
// finds none, and is put to sleep again; and its monitor wakes with them. That takes the processor
// from whatever runs beside the relay, and gains nothing: a backlog at full speed uses less than
// one.
//
// GOMAXPROCS, when set, wins.
type processors struct {
	used  func() time.Duration // processor time since the process began
	set   func(wide bool)
	wide  bool
	quiet time.Duration // for how long little was used
}

// Much is far below one processor: events should not queue for it, and on a crowded machine the
// relay gets less than it wants. The same work uses more with several, so what lies between much
// and little changes nothing. A change stops the world for some ten microseconds.
const (
	processorsEvery    = 100 * time.Millisecond
	processorsMuch     = processorsEvery / 4 // used in one look
	processorsLittle   = processorsEvery / 5 // the same
	processorsPatience = time.Second         // with little, before there is only one processor
)

func newProcessors() *processors {
	return &processors{used: processorTime, set: setProcessors, wide: true}
}

// processorsSettled reports whether the number of processors is settled: by who started the
// process, or by the machine.
func processorsSettled() bool { return os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 }

// Run looks until ctx is done.
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

// look takes in what was used in one processorsEvery.
func (p *processors) look(used time.Duration) {
	if used >= processorsLittle {
		p.quiet = 0
	} else {
		p.quiet += processorsEvery
	}
	switch {
	case !p.wide && used >= processorsMuch:
		p.wide = true
		p.set(true)
	case p.wide && p.quiet >= processorsPatience:
		p.wide = false
		p.set(false)
	}
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

// processorTime is what the process has used, in user and system mode.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // it fails for wrong arguments only
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
