// Waiting for a number of bytes.

package session

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/socket"
)

// hasMark is true where the kernel's poller heeds a low-water mark.
const hasMark = true

// waitForBytes waits until so many bytes have come at a TCP socket, or its stream has ended, or for
// pause, and returns how many are there. Until then the kernel wakes nobody for less: that is what
// the low-water mark is for (SO_RCVLOWAT, socket(7)). A sleep alone would not do: Go's poller is
// woken for each packet of the socket, also while no goroutine reads it.
//
// The mark is 1 byte afterwards: Go's reads wait until the kernel says that there is something. If
// that fails, an error is returned, for a read that followed could wait for ever.
func waitForBytes(sock syscall.RawConn, enough int, pause time.Duration) (there int, _ error) {
	var mark error
	closed := sock.Control(func(fd uintptr) {
		if socket.SetLowWater(fd, enough) != nil {
			time.Sleep(pause) // a kernel without a mark
		} else {
			timeout := unix.NsecToTimespec(pause.Nanoseconds())
			_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil) //nolint:errcheck // a signal ends the pause
			mark = socket.SetLowWater(fd, 1)
		}
		there, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) //nolint:errcheck // 0: the next read may pause
	})
	if err := errors.Join(closed, mark); err != nil {
		return 0, fmt.Errorf("wait for bytes of the replication connection: %w", err)
	}
	return there, nil
}
