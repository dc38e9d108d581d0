// Package largerow leaves large values out of the replication stream while it is read. PostgreSQL
// sends a row in one message of up to 1 GB, and whoever receives the message as a whole has all of
// it in memory. The Reader stands between the connection and that receiver. It hands on what is
// within the limit as it is. Of a larger row it hands on a message of the same form in which the
// length of each large value stands in its place, so that the row keeps its place in the stream,
// its id and its key, and package decode makes an event of it that tells what it lacks.
package largerow

import (
	"bufio"
	"encoding/binary"
)

// The parts of a message: type and length of each message of the server's, then in a CopyData
// message with WAL the byte 'w' and three numbers, then a frame of pgoutput.
const (
	messageHeader = 1 + 4
	walHeader     = messageHeader + 1 + 3*8
)

// Keep is the size of the largest value that is kept of a row over the limit. No entry of a B-tree
// is as large, so an id or a key with an index is kept. A table has 1,600 columns at most, so what
// is kept of a row has 6.3 MiB at most.
const Keep = 4 << 10

// Reader reads the messages of a server. An error of the connection, such as a deadline, may come
// at any byte: the next Read goes on behind it.
type Reader struct {
	from    *bufio.Reader // its buffer holds twice what is kept of a value, at least
	limit   int64         // the bytes of a frame that is handed on whatever it is
	keep    int           // Keep; fuzzing keeps less, so that small inputs have large values
	through int64         // bytes of the current message that are still to be handed on
	cut     *cut          // the message that is being rewritten
	out     []byte        // rewritten, and not handed on yet
}

// NewReader makes a Reader of a connection from its first message on.
func NewReader(from *bufio.Reader, limit int64) *Reader {
	return &Reader{from: from, limit: limit, keep: Keep}
}

// Read hands on as many bytes as are there, and waits only when there are none.
func (r *Reader) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var did int
		switch {
		case len(r.out) > 0:
			did = copy(p[n:], r.out)
			r.out = r.out[did:]
		case r.through > 0 && (n == 0 || r.from.Buffered() > 0):
			did, err = r.from.Read(p[n : n+int(min(r.through, int64(len(p)-n)))])
			r.through -= int64(did)
		case n > 0 && (r.cut != nil || r.from.Buffered() < walHeader+1): // the next step may wait
			return n, nil
		case r.cut != nil:
			err = r.rewrite()
		default:
			err = r.begin()
		}
		n += did
	}
	return n, err
}

// begin looks at the beginning of a message.
func (r *Reader) begin() error {
	header, err := r.from.Peek(messageHeader)
	if err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(header[1:])) + 1
	if header[0] != 'd' || size-walHeader <= r.limit {
		r.through = size
		return nil
	}
	if header, err = r.from.Peek(walHeader + 1); err != nil {
		return err
	}
	switch kind := header[walHeader]; {
	case header[messageHeader] == 'w' && (kind == 'I' || kind == 'U' || kind == 'D' || kind == 'M'):
		r.cut = newCut(kind, size, r.keep)
	default: // what describes tables is not large
		r.through = size
	}
	return nil
}

// rewrite reads on in a message over the limit. All of it is read before the first byte is handed
// on, because its new length comes first.
func (r *Reader) rewrite() error {
	for !r.cut.done() {
		if err := r.cut.step(r.from); err != nil {
			return err
		}
	}
	r.out, r.cut = r.cut.message(), nil
	return nil
}
