package replication

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lowWater says from how many bytes on a TCP socket wakes who waits for it. A lower mark wakes for what is there already (from Linux
// 4.18 on).
func lowWater(fd uintptr, bytes int) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes)
}

// gather waits until so many bytes have come at a TCP socket, or its stream has ended, or for pause. Until then the kernel
// wakes nobody for less: that is what the low-water mark is for (SO_RCVLOWAT, socket(7)), and a mere sleep would not do,
// since Go's poller is woken for the socket also while no goroutine reads it.
//
// It leaves the mark at 1 byte: Go's reads wait for the kernel's word that there is something. Should that fail, an error
// is returned, for a read that followed could wait for ever.
func gather(sock syscall.RawConn, enough int, pause time.Duration) error {
	var mark error
	closed := sock.Control(func(fd uintptr) {
		if lowWater(fd, enough) != nil {
			time.Sleep(pause) // a kernel that knows no mark
			return
		}
		timeout := unix.NsecToTimespec(pause.Nanoseconds())
		_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil) //nolint:errcheck // interrupted by a signal it is a smaller gulp
		mark = lowWater(fd, 1)
	})
	if err := errors.Join(closed, mark); err != nil {
		return fmt.Errorf("wait for a gulp: %w", err)
	}
	return nil
}
