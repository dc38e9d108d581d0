// Which user is at the other end of a Unix socket, as Linux tells it: the socket needs no token
// because of this.

package admin

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the user of the process at the other end, as of the time when it connected:
// unix(7), SO_PEERCRED.
func peerUID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return int(cred.Uid), nil
}
