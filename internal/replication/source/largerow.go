// Large values are left out of the replication stream while it is read. PostgreSQL sends a row in
// one message of up to 1 GB, and whoever receives the message as a whole has all of it in memory. A
// largeRowReader stands between the connection and that receiver. It hands on what is within the
// limit as it is. Of a larger row it hands on a message of the same form in which the length of
// each large value stands in its place, so that the row keeps its place in the stream, its id and
// its key, and package decode makes an event of it that tells what it lacks.

package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// The parts of a message: type and length of each message of the server's, then in a CopyData
// message with WAL the byte 'w' and three numbers, then a frame of pgoutput.
const (
	messageHeader = 1 + 4
	walHeader     = messageHeader + 1 + 3*8
)

// KeepOfLarge is the size of the largest value that is kept of a row over the limit. No entry of a
// B-tree is as large, so an id or a key with an index is kept. A table has 1,600 columns at most,
// so what is kept of a row has 6.3 MiB at most.
const KeepOfLarge = 4 << 10

// largeRowReader reads the messages of a server. An error of the connection, such as a deadline,
// may come at any byte: the next Read goes on behind it.
type largeRowReader struct {
	from    *bufio.Reader // its buffer holds twice what is kept of a value, at least
	limit   int64         // the bytes of a frame that is handed on whatever it is
	keep    int           // KeepOfLarge; fuzzing keeps less, so that small inputs have large values
	through int64         // bytes of the current message that are still to be handed on
	cut     *cut          // the message that is being rewritten
	out     []byte        // rewritten, and not handed on yet
}

// newLargeRowReader makes a largeRowReader of a connection from its first message on.
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
func (r *largeRowReader) begin() error {
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
func (r *largeRowReader) rewrite() error {
	for !r.cut.done() {
		if err := r.cut.step(r.from); err != nil {
			return err
		}
	}
	r.out, r.cut = r.cut.message(), nil
	return nil
}

// errLength ends the session, as a frame does that cannot be decoded: what follows would be read
// from the wrong byte on.
var errLength = errors.New("read the replication stream: a message is shorter than what it says to contain")

// cut rewrites one message. Each step reads one part as a whole or nothing, so that it can be
// repeated after an error.
type cut struct {
	kind byte  // of the frame
	left int64 // bytes of the message that were not read
	most int   // largeRowReader.keep
	out  []byte
	next func(*cut, *bufio.Reader) error // reads the part that is due

	columns int   // of the tuple, that were not read
	keep    int   // bytes of a value that is kept
	skip    int64 // bytes of a value that is left out
}

func newCut(kind byte, size int64, most int) *cut {
	return &cut{kind: kind, left: size, most: most, next: (*cut).head}
}

// done reports whether all of the message was read.
func (c *cut) done() bool { return c.left == 0 }

// message is the rewritten message.
func (c *cut) message() []byte {
	binary.BigEndian.PutUint32(c.out[1:], uint32(len(c.out)-1))
	return c.out
}

func (c *cut) step(from *bufio.Reader) error {
	switch {
	case c.skip > 0:
		n, err := from.Discard(int(min(c.skip, 1<<30)))
		c.skip -= int64(n)
		c.left -= int64(n)
		return err
	case c.keep > 0:
		n := c.keep
		_, err := c.take(from, n)
		if err == nil {
			c.keep = 0
		}
		return err
	}
	return c.next(c, from)
}

// peek looks at the next n bytes.
func (c *cut) peek(from *bufio.Reader, n int) ([]byte, error) {
	if int64(n) > c.left {
		return nil, errLength
	}
	return from.Peek(n)
}

// take reads the next n bytes and keeps them.
func (c *cut) take(from *bufio.Reader, n int) ([]byte, error) {
	b, err := c.peek(from, n)
	if err != nil {
		return nil, err
	}
	c.out = append(c.out, b...)
	c.drop(from, n)
	return b, nil
}

// drop passes n bytes that were looked at.
func (c *cut) drop(from *bufio.Reader, n int) {
	_, _ = from.Discard(n) //nolint:errcheck // they are in the buffer
	c.left -= int64(n)
}

// head reads up to the type of the frame, and of a change the table's OID.
func (c *cut) head(from *bufio.Reader) error {
	n := walHeader + 1 + 4
	c.next = (*cut).tuple
	if c.kind == 'M' {
		n, c.next = walHeader+1+1+8, (*cut).prefix // flags, LSN
	}
	if _, err := c.take(from, n); err != nil {
		c.next = (*cut).head
		return err
	}
	return nil
}

// tuple reads what announces a tuple: which one, and how many columns it has. An update may have
// two.
func (c *cut) tuple(from *bufio.Reader) error {
	b, err := c.take(from, 1+2)
	if err != nil {
		return err
	}
	if c.columns = int(binary.BigEndian.Uint16(b[1:])); c.columns > 0 {
		c.next = (*cut).column
	}
	return nil
}

// column reads the kind of a column, and the length of its value.
func (c *cut) column(from *bufio.Reader) error {
	b, err := c.peek(from, 1)
	if err != nil {
		return err
	}
	if b[0] != 't' && b[0] != 'b' { // it has no value
		_, err = c.take(from, 1)
	} else if b, err = c.peek(from, 1+4); err == nil {
		size := int64(binary.BigEndian.Uint32(b[1:]))
		if size > c.left-int64(len(b)) {
			return errLength
		}
		if size <= int64(c.most) {
			c.out, c.keep = append(c.out, b...), int(size)
		} else {
			c.out, c.skip = append(append(c.out, decode.LeftOutValue), b[1:]...), size
		}
		c.drop(from, 1+4)
	}
	if err != nil {
		return err
	}
	if c.columns--; c.columns == 0 {
		c.next = (*cut).tuple
	}
	return nil
}

// prefix reads the prefix of a logical message, and then leaves out its content. Of a prefix as
// long as the content of others its beginning is kept: nobody has configured it.
func (c *cut) prefix(from *bufio.Reader) error {
	n := int(min(int64(c.most), c.left))
	b, err := c.peek(from, n)
	if err != nil {
		return err
	}
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		c.out = append(append(c.out, b...), 0)
		c.drop(from, n)
	} else {
		if b, err = c.peek(from, end+1+4); err != nil {
			return err
		}
		c.out = append(c.out, b[:end+1]...)
		c.drop(from, end+1+4)
	}
	c.out[walHeader] = decode.LeftOutMessage
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(c.left))
	c.skip = c.left
	return nil
}
