// The clock of a proxy's delays.

package netproxy

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// clock waits for a moment to some 50 µs. The runtime's own timers wait in whole milliseconds when
// nothing else happens, which would make a delay of 1 ms anything up to 2. A timerfd is a file that
// becomes readable at the moment, so the wait is that of any other connection and blocks no thread.
type clock struct {
	fd   int // asking the file for it would make it blocking
	file *os.File
}

func newClock() (*clock, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make timer: %w", err)
	}
	return &clock{fd, os.NewFile(uintptr(fd), "timerfd")}, nil
}

// waitUntil returns at the moment, or with errDropped when gone is closed before (or up to 10 ms
// later).
func (c *clock) waitUntil(moment time.Time, gone <-chan struct{}) error {
	const fine = 10 * time.Millisecond
	if left := time.Until(moment); left > fine {
		coarse := time.NewTimer(left - fine)
		defer coarse.Stop()
		select {
		case <-coarse.C:
		case <-gone:
			return errDropped
		}
	}
	left := time.Until(moment)
	if left <= 0 {
		return nil
	}
	if err := unix.TimerfdSettime(c.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}, nil); err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	var expirations [8]byte
	if _, err := c.file.Read(expirations[:]); err != nil {
		return fmt.Errorf("wait for timer: %w", err)
	}
	return nil
}
