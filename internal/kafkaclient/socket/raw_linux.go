// The system calls of a Conn, without a word to the scheduler.

//go:build linux && !386 && !race

package socket

import (
	"os"
	"syscall"
	"unsafe"
)

const hasCalls = true

// rawRead reads into p, which is not empty.
func rawRead(fd uintptr, p []byte) (int, syscall.Errno) {
	return rawCall(syscall.SYS_READ, fd, p)
}

// rawWrite writes of p, which is not empty.
func rawWrite(fd uintptr, p []byte) (int, syscall.Errno) {
	return rawCall(syscall.SYS_WRITE, fd, p)
}

func rawCall(number, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR: // by a signal, such as Go's own
		default:
			return 0, errno
		}
	}
}

// rawPeek looks for a byte to read, and leaves it there. EAGAIN: there is none, and there may come
// one.
func rawPeek(fd uintptr) syscall.Errno {
	var b [1]byte
	for {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// SetLowWater sets how many bytes at a TCP socket wake the one who waits for it. A mark that
// becomes lower wakes it for what is there already (since Linux 4.18).
func SetLowWater(fd uintptr, bytes int) error {
	value := int32(bytes)
	_, _, errno := syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, fd, syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	if errno != 0 {
		return os.NewSyscallError("setsockopt", errno)
	}
	return nil
}
