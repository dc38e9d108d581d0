// Changing bytes of a message on its way.

package netproxy

import (
	"bytes"
	"io"
)

// Spoil has the proxy change the last byte of each occurrence of a text that clients send over
// connections opened from now on, as memory or network do that change bytes: what is protected by a
// checksum is refused. Nil ends it, for new connections.
func (p *Proxy) Spoil(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoil = text
}

// spoiler reads what a client sends, spoilt.
type spoiler struct {
	from io.Reader
	text []byte
	// the last bytes that were read, one fewer than the text has: it may come in two pieces
	tail []byte
}

func (s *spoiler) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	seen := append(s.tail, p[:n]...)
	before := len(s.tail)
	for at := 0; ; {
		i := bytes.Index(seen[at:], s.text)
		if i < 0 {
			break
		}
		at += i + len(s.text)
		p[at-1-before] ^= 1 // the text is longer than the tail: its last byte is new
	}
	s.tail = bytes.Clone(seen[max(0, len(seen)-len(s.text)+1):])
	return n, err
}
