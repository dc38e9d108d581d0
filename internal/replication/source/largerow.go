// Large values are left out of the replication stream while it is read. PostgreSQL sends a row in
// one message of up to 1 GB, and whoever receives the message as a whole has all of it in memory. A
// largeRowReader stands between the connection and that receiver. It hands on a message within the
// limit as it is. Of a larger row it hands on a message of the same form in which the length of
// each large value stands in the value's place. So the row keeps its place in the stream, its id
// and its key, and package decode makes an event of it that tells what the row lacks.

package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// messageHeader is the type and length of each message of the server. In a CopyData message with
// WAL the byte 'w' and three numbers follow, up to walHeader, and then a frame of pgoutput.
const (
	messageHeader = 1 + 4
	walHeader     = messageHeader + 1 + 3*8
)

// KeepOfLarge is the size of the largest value that is kept of a row over the limit. An entry of a
// B-tree is smaller, so an id or a key with an index is kept. A table has 1,600 columns at most, so
// what is kept of a row has 6.3 MiB at most.
const KeepOfLarge = 4 << 10

// largeRowReader reads the messages of a server. An error of the connection, such as a deadline,
// may come at any byte: the next Read goes on behind it.
type largeRowReader struct {
	from  *bufio.Reader // its buffer holds twice what is kept of a value, at least
	limit int64         // bytes of a frame: up to it, frames are handed on as they are
	// keep is KeepOfLarge; fuzzing keeps less, so that small inputs have large values
	keep int
	// passBytes is how many bytes of the current message are still to be handed on as they are
	passBytes int64
	cut       *messageCut // the message that is being rewritten; nil: none is
	out       []byte      // rewritten bytes that were not handed on yet
}

// newLargeRowReader makes a largeRowReader that reads a connection from its first message on.
func newLargeRowReader(from *bufio.Reader, limit int64) *largeRowReader {
	return &largeRowReader{from: from, limit: limit, keep: KeepOfLarge}
}

// Read hands on as many bytes as are there, and waits only when there are none.
func (r *largeRowReader) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var did int
		switch {
		case len(r.out) > 0:
			did = copy(p[n:], r.out)
			r.out = r.out[did:]
		case r.passBytes > 0 && (n == 0 || r.from.Buffered() > 0):
			did, err = r.from.Read(p[n : n+int(min(r.passBytes, int64(len(p)-n)))])
			r.passBytes -= int64(did)
		case n > 0 && (r.cut != nil || r.from.Buffered() < walHeader+1): // the next step may wait
			return n, nil
		case r.cut != nil:
			err = r.rewriteMessage()
		default:
			err = r.beginMessage()
		}
		n += did
	}
	return n, err
}

// beginMessage looks at the beginning of a message, and decides whether the message is handed on as
// it is or rewritten.
func (r *largeRowReader) beginMessage() error {
	header, err := r.from.Peek(messageHeader)
	if err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(header[1:])) + 1
	if header[0] != 'd' || size-walHeader <= r.limit {
		r.passBytes = size
		return nil
	}
	if header, err = r.from.Peek(walHeader + 1); err != nil {
		return err
	}
	switch kind := header[walHeader]; {
	case header[messageHeader] == 'w' && (kind == 'I' || kind == 'U' || kind == 'D' || kind == 'M'):
		r.cut = newCut(kind, size, r.keep)
	default: // what describes tables is not large
		r.passBytes = size
	}
	return nil
}

// rewriteMessage reads the rest of a message over the limit and rewrites it. All of the message is
// read before its first byte is handed on, because its new length comes first.
func (r *largeRowReader) rewriteMessage() error {
	for !r.cut.isDone() {
		if err := r.cut.readPart(r.from); err != nil {
			return err
		}
	}
	r.out, r.cut = r.cut.message(), nil
	return nil
}

// errLength ends the session, as a frame does that cannot be decoded: everything that follows would
// be read from the wrong byte on.
var errLength = errors.New("read the replication stream: a message is shorter than what it says to contain")

// messageCut rewrites one message. Each step reads one part as a whole or nothing, so that it can
// be repeated after an error.
type messageCut struct {
	kind     byte                                   // of the frame
	left     int64                                  // bytes of the message that were not read yet
	most     int                                    // largeRowReader.keep
	out      []byte                                 // the rewritten message so far
	nextPart func(*messageCut, *bufio.Reader) error // reads the part that is due

	columns    int   // columns of the tuple that were not read yet
	keepLength int   // bytes of the current value, if it is kept; else 0
	skipLength int64 // bytes of the current value that are still to be left out
}

// newCut begins to rewrite a message of size bytes; most is the size of the largest value that is
// kept.
func newCut(kind byte, size int64, most int) *messageCut {
	return &messageCut{kind: kind, left: size, most: most, nextPart: (*messageCut).readHead}
}

// isDone reports whether all of the message was read.
func (c *messageCut) isDone() bool { return c.left == 0 }

// message is the rewritten message.
func (c *messageCut) message() []byte {
	binary.BigEndian.PutUint32(c.out[1:], uint32(len(c.out)-1))
	return c.out
}

// readPart reads the next part, or some of a value that is left out.
func (c *messageCut) readPart(from *bufio.Reader) error {
	switch {
	case c.skipLength > 0:
		n, err := from.Discard(int(min(c.skipLength, 1<<30)))
		c.skipLength -= int64(n)
		c.left -= int64(n)
		return err
	case c.keepLength > 0:
		n := c.keepLength
		_, err := c.keepBytes(from, n)
		if err == nil {
			c.keepLength = 0
		}
		return err
	}
	return c.nextPart(c, from)
}

// peekBytes looks at the next n bytes of the message without reading them.
func (c *messageCut) peekBytes(from *bufio.Reader, n int) ([]byte, error) {
	if int64(n) > c.left {
		return nil, errLength
	}
	return from.Peek(n)
}

// keepBytes reads the next n bytes and keeps them.
func (c *messageCut) keepBytes(from *bufio.Reader, n int) ([]byte, error) {
	b, err := c.peekBytes(from, n)
	if err != nil {
		return nil, err
	}
	c.out = append(c.out, b...)
	c.passPeeked(from, n)
	return b, nil
}

// passPeeked passes n bytes that were looked at.
func (c *messageCut) passPeeked(from *bufio.Reader, n int) {
	_, _ = from.Discard(n) //nolint:errcheck // they are in the buffer
	c.left -= int64(n)
}

// readHead reads up to the type of the frame, and for a change of a row also the table's OID.
func (c *messageCut) readHead(from *bufio.Reader) error {
	n := walHeader + 1 + 4
	c.nextPart = (*messageCut).readTuple
	if c.kind == 'M' {
		n, c.nextPart = walHeader+1+1+8, (*messageCut).readPrefix // flags, LSN
	}
	if _, err := c.keepBytes(from, n); err != nil {
		c.nextPart = (*messageCut).readHead
		return err
	}
	return nil
}

// readTuple reads what announces a tuple: which tuple it is, and how many columns it has. An update
// may have two tuples.
func (c *messageCut) readTuple(from *bufio.Reader) error {
	b, err := c.keepBytes(from, 1+2)
	if err != nil {
		return err
	}
	if c.columns = int(binary.BigEndian.Uint16(b[1:])); c.columns > 0 {
		c.nextPart = (*messageCut).readColumn
	}
	return nil
}

// readColumn reads the kind of a column, and the length of its value.
func (c *messageCut) readColumn(from *bufio.Reader) error {
	b, err := c.peekBytes(from, 1)
	if err != nil {
		return err
	}
	if b[0] != 't' && b[0] != 'b' { // it has no value
		_, err = c.keepBytes(from, 1)
	} else if b, err = c.peekBytes(from, 1+4); err == nil {
		size := int64(binary.BigEndian.Uint32(b[1:]))
		if size > c.left-int64(len(b)) {
			return errLength
		}
		if size <= int64(c.most) {
			c.out, c.keepLength = append(c.out, b...), int(size)
		} else {
			c.out, c.skipLength = append(append(c.out, decode.LeftOutValue), b[1:]...), size
		}
		c.passPeeked(from, 1+4)
	}
	if err != nil {
		return err
	}
	if c.columns--; c.columns == 0 {
		c.nextPart = (*messageCut).readTuple
	}
	return nil
}

// readPrefix reads the prefix of a logical message, and then leaves out the content. If the prefix
// itself is too large, only its beginning is kept: nobody has configured such a prefix.
func (c *messageCut) readPrefix(from *bufio.Reader) error {
	n := int(min(int64(c.most), c.left))
	b, err := c.peekBytes(from, n)
	if err != nil {
		return err
	}
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		c.out = append(append(c.out, b...), 0)
		c.passPeeked(from, n)
	} else {
		if b, err = c.peekBytes(from, end+1+4); err != nil {
			return err
		}
		c.out = append(c.out, b[:end+1]...)
		c.passPeeked(from, end+1+4)
	}
	c.out[walHeader] = decode.LeftOutMessage
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(c.left))
	c.skipLength = c.left
	return nil
}
