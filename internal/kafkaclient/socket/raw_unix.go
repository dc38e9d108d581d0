// The system calls of a Conn in the ordinary way: elsewhere than on Linux, and under the race
// detector, which would not see what a raw call reads and writes.

//go:build unix && !(linux && !386 && !race)

package socket

import (
	"errors"
	"os"
	"syscall"
)

const hasCalls = true

// rawRead reads into p, which is not empty.
func rawRead(fd uintptr, p []byte) (int, syscall.Errno) {
	n, err := syscall.Read(int(fd), p)
	return max(n, 0), errnoOf(err)
}

// rawWrite writes of p, which is not empty.
func rawWrite(fd uintptr, p []byte) (int, syscall.Errno) {
	n, err := syscall.Write(int(fd), p)
	return max(n, 0), errnoOf(err)
}

// rawPeek looks for a byte to read, and leaves it there. EAGAIN: there is none, and there may come
// one.
func rawPeek(fd uintptr) syscall.Errno {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	return errnoOf(err)
}

// SetLowWater sets how many bytes at a TCP socket wake the one who waits for it.
func SetLowWater(fd uintptr, bytes int) error {
	return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes))
}

func errnoOf(err error) (errno syscall.Errno) {
	if err != nil && !errors.As(err, &errno) {
		return syscall.EIO
	}
	return errno
}
