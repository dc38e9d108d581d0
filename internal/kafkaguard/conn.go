// A connection of kafka-go's, whose answers are checked.

package kafkaguard

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/heartbeat"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/leavegroup"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/segmentio/kafka-go/protocol/offsetfetch"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/protocol/syncgroup"
)

const (
	// maxAnswer and maxMemory are for an answer without records.
	maxAnswer = 16 << 20
	maxMemory = 64 << 20
	// FetchLimit is the least limit that a Dialer should have: no broker's default allows a batch
	// that takes as much.
	FetchLimit = 64 << 20

	spare = 1 << 20 // a buffer that grew past this for a large answer is given back
)

// answers are those that are checked. Of others only the size is.
var answers = func() map[protocol.ApiKey]protocol.Message {
	m := map[protocol.ApiKey]protocol.Message{}
	for _, res := range []protocol.Message{
		&apiversions.Response{}, &createtopics.Response{}, &describeconfigs.Response{}, &fetch.Response{}, &findcoordinator.Response{},
		&heartbeat.Response{}, &initproducerid.Response{}, &joingroup.Response{}, &leavegroup.Response{}, &listoffsets.Response{}, &metadata.Response{},
		&offsetcommit.Response{}, &offsetfetch.Response{}, &produce.Response{}, &saslauthenticate.Response{}, &saslhandshake.Response{},
		&syncgroup.Response{},
	} {
		m[res.ApiKey()] = res
	}
	return m
}()

// Dialer opens connections for kafka-go.
type Dialer struct {
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	TLS   *tls.Config        // nil: no TLS. kafka-go must not have it, too: it would encrypt twice
	Limit int                // of the memory that the records of one answer take
	More  []protocol.Message // answers of the caller's own
}

// DialContext is for kafka-go's Transport.Dial and Dialer.DialFunc.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := d.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.TLS != nil {
		config := d.TLS.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address) //nolint:errcheck // it was dialled
		}
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		raw = secure
	}
	return &conn{Conn: raw, dialer: d}, nil
}

// conn reads each answer as a whole, and hands on one that is in order.
type conn struct {
	net.Conn
	dialer *Dialer

	mu    sync.Mutex
	asked []asked  // requests without an answer so far
	head  [12]byte // of the request that is being written: size, key, version, correlation id
	have  int      // bytes of head
	left  int      // bytes of the request behind head

	buffer []byte
	ready  []byte // of the answer that is being read
	err    error  // a part of an answer is lost
}

// asked is a request.
type asked struct {
	key     protocol.ApiKey
	version int16
	id      int32
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.follow(p); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// follow notes the requests in what is written.
func (c *conn) follow(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		if c.left > 0 {
			n := min(c.left, len(p))
			c.left, p = c.left-n, p[n:]
			continue
		}
		n := copy(c.head[c.have:], p)
		c.have, p = c.have+n, p[n:]
		if c.have < len(c.head) {
			return nil
		}
		a := asked{protocol.ApiKey(binary.BigEndian.Uint16(c.head[4:])), int16(binary.BigEndian.Uint16(c.head[6:])), int32(binary.BigEndian.Uint32(c.head[8:]))}
		if a.key == protocol.SaslHandshake && a.version == 0 {
			return errors.New("the broker has no SaslHandshake v1: Kafka 1.0 or newer is needed")
		}
		c.asked = append(c.asked, a)
		c.have, c.left = 0, int(binary.BigEndian.Uint32(c.head[:]))-8
	}
	return nil
}

func (c *conn) Read(p []byte) (int, error) {
	if len(c.ready) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		if err := c.answer(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.ready)
	if c.ready = c.ready[n:]; len(c.ready) == 0 && cap(c.buffer) > spare {
		c.buffer, c.ready = nil, nil
	}
	return n, nil
}

// answer reads the next answer. An error before its first byte, such as that of a deadline, leaves
// the connection as it is.
func (c *conn) answer() error {
	var head [4]byte
	n, err := io.ReadFull(c.Conn, head[:])
	if n == 0 {
		return err
	}
	if err == nil {
		err = c.body(head)
	}
	c.err = err
	return err
}

func (c *conn) body(head [4]byte) error {
	if head[0] == 21 && head[1] == 3 {
		return fmt.Errorf("%w: the broker answers with a TLS alert: the port expects TLS", io.ErrUnexpectedEOF)
	}
	c.mu.Lock()
	if len(c.asked) == 0 {
		c.mu.Unlock()
		return fmt.Errorf("%w: nothing was asked", ErrAnswer)
	}
	a := c.asked[0]
	c.asked = c.asked[1:]
	c.mu.Unlock()
	most, memory := maxAnswer, maxMemory
	if a.key == protocol.Fetch {
		most, memory = c.dialer.Limit, c.dialer.Limit
	}
	size := int(int32(binary.BigEndian.Uint32(head[:])))
	if size < 4 {
		return fmt.Errorf("%w: it has %d bytes", ErrAnswer, size)
	}
	if size > most {
		return fmt.Errorf("%v: %w", a.key, &TooLarge{most})
	}
	var err error
	if c.buffer, err = ReadBody(io.MultiReader(bytes.NewReader(head[:]), c.Conn), c.buffer, 4+size); err != nil {
		return err
	}
	if id := int32(binary.BigEndian.Uint32(c.buffer[4:])); id != a.id {
		return fmt.Errorf("%w: it is to request %d, not to %d", ErrAnswer, id, a.id)
	}
	if res := c.dialer.message(a.key); res != nil {
		if err := check(c.buffer[8:], res, a.version, memory); err != nil {
			return fmt.Errorf("%v: %w", a.key, err)
		}
	}
	c.ready = c.buffer
	return nil
}

func (d *Dialer) message(key protocol.ApiKey) protocol.Message {
	for _, m := range d.More {
		if m.ApiKey() == key {
			return m
		}
	}
	return answers[key]
}
