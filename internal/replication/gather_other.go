//go:build !linux

package replication

import (
	"syscall"
	"time"
)

// gather waits for pause: only Linux is asked to wait for a number of bytes.
func gather(_ syscall.RawConn, _ int, pause time.Duration) error {
	time.Sleep(pause)
	return nil
}
