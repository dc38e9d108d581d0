// Hiding the process ids of PostgreSQL's backends, as the proxies of some hosting services do.

package netproxy

import (
	"encoding/binary"
	"io"
)

// HideProcessIDs has the proxy tell clients that connect from now on another process id than that
// of their backend: in BackendKeyData, the one message that has it. No backend has the id that
// clients get, so a request to cancel does nothing. It works for clients that do not ask for TLS.
func (p *Proxy) HideProcessIDs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hideIDs = true
}

// idHider reads what PostgreSQL sends to a client, with another process id in BackendKeyData:
// https://www.postgresql.org/docs/current/protocol-message-formats.html
type idHider struct {
	from io.Reader
	head []byte // the beginning of a message: type and length
	skip int    // bytes to the next message
	done bool   // the client is logged in: no such message comes
}

func (h *idHider) Read(p []byte) (int, error) {
	n, err := h.from.Read(p)
	for b := p[:n]; len(b) > 0 && !h.done; {
		if h.skip > 0 {
			passed := min(h.skip, len(b))
			h.skip -= passed
			b = b[passed:]
			continue
		}
		if len(h.head) == messageHead { // the body begins
			if h.head[0] == 'K' {
				b[0] ^= 0x40 // the id's first byte: no id is as high
			}
			h.skip = int(binary.BigEndian.Uint32(h.head[1:])) - 4
			h.head = h.head[:0]
			continue
		}
		h.head = append(h.head, b[0])
		b = b[1:]
		h.done = len(h.head) == messageHead && h.head[0] == 'Z' // ReadyForQuery
	}
	return n, err
}
