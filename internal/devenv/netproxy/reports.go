// Reading a relay's standby status updates out of the replication stream.

package netproxy

import (
	"encoding/binary"
	"io"

	"github.com/jackc/pglogrepl"
)

// WatchReports has report called with the flush position of every standby status update that a
// client sends over connections opened from now on, in their order, before the server can have it.
// It holds up the connection: report must return soon. Only what goes through the proxy unencrypted
// can be seen.
func (p *Proxy) WatchReports(report func(flush pglogrepl.LSN)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = report
}

// reportReader reads what a client sends to PostgreSQL, and reports each standby status update in
// it: https://www.postgresql.org/docs/current/protocol-message-formats.html
type reportReader struct {
	from   io.Reader
	report func(flush pglogrepl.LSN)

	typed bool   // the startup message is over: a message begins with its type
	head  []byte // the beginning of a message, as much of it as is needed
	skip  int    // bytes to the next message
}

const (
	startupHead  = 4 + 4 // length, version or request code
	messageHead  = 1 + 4 // type, length
	updateLength = 4 + 34
)

func (r *reportReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	for b := p[:n]; len(b) > 0; {
		b = b[r.take(b):]
	}
	return n, err
}

// take parses the beginning of b and returns how much of it that was.
func (r *reportReader) take(b []byte) int {
	if r.skip > 0 {
		n := min(r.skip, len(b))
		r.skip -= n
		return n
	}
	n := min(r.need()-len(r.head), len(b))
	r.head = append(r.head, b[:n]...)
	if len(r.head) == r.need() {
		r.begin()
		r.head = r.head[:0]
	}
	return n
}

// need is how many bytes of the message say what it is.
func (r *reportReader) need() int {
	switch {
	case !r.typed:
		return startupHead
	case r.maybeUpdate():
		return 1 + updateLength
	}
	return messageHead
}

// maybeUpdate: the head is of CopyData as long as an update.
func (r *reportReader) maybeUpdate() bool {
	return len(r.head) >= messageHead && r.head[0] == 'd' && binary.BigEndian.Uint32(r.head[1:]) == updateLength
}

// begin is called with the head of a message.
func (r *reportReader) begin() {
	switch {
	case !r.typed:
		// else a request, such as for TLS, after which it begins again
		r.typed = binary.BigEndian.Uint16(r.head[4:]) == 3
		r.skip = int(binary.BigEndian.Uint32(r.head)) - startupHead
	case !r.maybeUpdate():
		r.skip = int(binary.BigEndian.Uint32(r.head[1:])) - 4
	case r.head[messageHead] == 'r': // then the positions written, flushed, applied
		r.report(pglogrepl.LSN(binary.BigEndian.Uint64(r.head[messageHead+1+8:])))
	}
}
