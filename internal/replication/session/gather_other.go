// Systems without a low-water mark that their poller heeds.

//go:build !linux

package session

import (
	"errors"
	"syscall"
	"time"
)

// hasMark is explained in gather_linux.go. While it is false nothing below is called.
const hasMark = false

func waitForBytes(syscall.RawConn, int, time.Duration) (int, error) { return 0, errors.ErrUnsupported }
