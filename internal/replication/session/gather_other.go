//go:build !linux

package session

import (
	"errors"
	"syscall"
	"time"
)

// lowWater exists on Linux alone.
func lowWater(uintptr, int) error { return errors.ErrUnsupported }

// gather waits for pause: only Linux waits for a number of bytes.
func gather(_ syscall.RawConn, _ int, pause time.Duration) error {
	time.Sleep(pause)
	return nil
}
