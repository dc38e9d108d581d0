// Free ports that no other test is given.

package processes

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// ListenFree listens on a free port of 127.0.0.1 below 32768. The kernel gives the ports above it
// to outgoing connections: a server that is down for a while could find its port taken, or a client
// that dials the closed port could be connected to itself. Nobody else who asks here is given the
// port until this process ends.
func ListenFree() (*net.TCPListener, error) {
	var err error
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if err = reserve(addr); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", addr); err == nil {
			return l.(*net.TCPListener), nil
		}
	}
	return nil, fmt.Errorf("find free port: %w", err)
}

// reserved are the ports of this process. They stay reserved while their servers are stopped or
// their proxies are cut.
var reserved struct {
	sync.Mutex
	ports []net.PacketConn
}

// reserve takes the UDP port of the same number, which nothing here uses: who has it has the TCP
// port, too, be it open or not, among all processes that ask for ports in this way.
func reserve(addr string) error {
	port, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return err
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.ports = append(reserved.ports, port)
	return nil
}

// UnusedPort is a port nobody listens on now, and that nobody is given who asks here.
func UnusedPort() (int, error) {
	l, err := ListenFree()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// FreePort is such a port for a test, on which nobody listens who asks for ports here, until its
// process ends.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := UnusedPort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
