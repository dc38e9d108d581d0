// Systems without a Conn.

//go:build !unix

package socket

import "syscall"

const hasCalls = false

func rawRead(uintptr, []byte) (int, syscall.Errno)  { return 0, syscall.EINVAL }
func rawWrite(uintptr, []byte) (int, syscall.Errno) { return 0, syscall.EINVAL }
func rawPeek(uintptr) syscall.Errno                 { return syscall.EINVAL }
