// Systems without a low-water mark that their poller heeds.

//go:build !linux

package session

import (
	"errors"
	"syscall"
	"time"
)

// hasMark: see Linux. Elsewhere nothing below is called.
const hasMark = false

func lowWater(uintptr, int) error { return errors.ErrUnsupported }

func gather(syscall.RawConn, int, time.Duration) (int, error) { return 0, errors.ErrUnsupported }
