package rabbit

import (
	"fmt"
	"net"
	"time"
)

// Dial is for amqp.Config.Dial: a TCP connection whose writes are gathered as those of the sink's own connections are. It
// gives the benchmarks a publisher without a relay that writes as well as the relay does. Its flusher ends with Close, or
// with the connection. A write never blocks and has no bound here: the caller bounds what is unconfirmed.
func Dial(network, addr string) (net.Conn, error) {
	raw, err := net.DialTimeout(network, addr, handshakeTimeout) //nolint:noctx // amqp.Config.Dial has no context
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	w := newWire(raw, raw, readSilence)
	if err := w.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("bound handshake with %s: %w", addr, err)
	}
	go w.run()
	return w, nil
}
