// A message over the limit on its way through: what was read of it, and what is made of it.

package largerow

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// errLength ends the session, as a frame does that cannot be decoded: what follows would be read
// from the wrong byte on.
var errLength = errors.New("read the replication stream: a message is shorter than what it says to contain")

// cut rewrites one message. Each step reads one part as a whole or nothing, so that it can be
// repeated after an error.
type cut struct {
	kind byte  // of the frame
	left int64 // bytes of the message that were not read
	most int   // Reader.keep
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
