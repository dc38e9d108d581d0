//go:build !linux

package replication

import (
	"errors"
	"syscall"
	"time"
)

// lowWater: only Linux is asked for it.
func lowWater(uintptr, int) error { return errors.ErrUnsupported }

// gather waits for pause: only Linux is asked to wait for a number of bytes.
func gather(_ syscall.RawConn, _ int, pause time.Duration) error {
	time.Sleep(pause)
	return nil
}
