package devenv

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// listenFree listens on a free port of 127.0.0.1 below 32768. The kernel gives the ports above it to outgoing
// connections: a server that is down for a while could find its port taken, or a client that dials the closed port could
// be connected to itself.
func listenFree() (*net.TCPListener, error) {
	var err error
	for range 100 {
		var l net.Listener
		l, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			return l.(*net.TCPListener), nil
		}
	}
	return nil, fmt.Errorf("find free port: %w", err)
}

// freePort is a port nobody listens on now. Somebody else may take it before it is used: starting a server is tried again
// with another one then.
func freePort() (int, error) {
	l, err := listenFree()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
