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

// freePorts are n ports, no two the same, on which nobody listens now. Somebody else may take one before it is used: starting
// a server is tried again with others then.
func freePorts(n int) (ports []int, err error) {
	var held []net.Listener // until all are found: else one could be found twice
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range n {
		l, err := listenFree()
		if err != nil {
			return nil, err
		}
		held, ports = append(held, l), append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func freePort() (int, error) {
	ports, err := freePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}
