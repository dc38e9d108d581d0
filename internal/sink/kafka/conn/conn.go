// Package conn is one connection to a Kafka broker: TCP, TLS, versions, login, then one request and
// its answer at a time.
package conn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/internal/kafkaguard"
)

const (
	// A broker drops a connection that was idle for connections.max.idle.ms (10 minutes); load
	// balancers drop it sooner (4 minutes on some clouds). A connection that was idle for this long
	// is not used again: a request that is lost on it would be in doubt.
	maxIdle = 3 * time.Minute
	// maxAnswer is far above the size of any answer, in bytes. A peer that announces more does not
	// speak Kafka, and is not read.
	maxAnswer = 8 << 20
	// maxMemory is for an answer that was decoded: 140,000 partitions take as much.
	maxMemory = 16 << 20
	// a buffer that grew past this for a large answer is given back
	spare = 1 << 20
)

// Conn is a connection to one broker, logged in. It carries one request at a time, from one
// goroutine at a time; close may be called from any. It has a goroutine of its own only while it is
// watched.
type Conn struct {
	Addr     string
	clientID string
	net      net.Conn
	idle     idle
	reader   *bufio.Reader
	gather   gather
	frame    []byte           // of the last answer
	produced produce.Response // the last answer to a produce request
	Versions map[protocol.ApiKey]int16
	last     int32     // correlation id of the last request
	used     time.Time // of the last answer
	Expires  time.Time // when the broker wants a new login; zero: never
	closed   atomic.Bool
}

// Usable reports whether a request may be sent: the connection is up, the broker has sent nothing
// that was not asked for, it has not idled for long, and the login is good for a while. The
// goroutine that sends calls it while no request is under way.
func (c *Conn) Usable() bool {
	now := time.Now()
	return !c.closed.Load() && now.Sub(c.used) < maxIdle && (c.Expires.IsZero() || now.Before(c.Expires)) && c.idle.holds()
}

// RoundTripper is a *Conn, or what tests put in its place.
type RoundTripper interface {
	RoundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error)
	Close()
}

// RoundTripAs is RoundTrip for an answer of type R. Any error closes the connection.
func RoundTripAs[R protocol.Message](ctx context.Context, c RoundTripper, timeout time.Duration, req protocol.Message) (res R, err error) {
	answer, err := c.RoundTrip(ctx, timeout, req)
	if err != nil {
		return res, err
	}
	res, ok := answer.(R)
	if !ok {
		c.Close()
		return res, fmt.Errorf("send %v: the answer is a %T", req.ApiKey(), answer)
	}
	return res, nil
}

// RoundTrip sends a request and waits for its answer, at most for timeout. The end of ctx breaks it
// at once; the error then wraps ctx's. Any error closes the connection, and whether the broker had
// the request is not known.
func (c *Conn) RoundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error) {
	answer, err := c.exchange(ctx, timeout, req)
	if err != nil {
		c.Close()
		if ended := ctx.Err(); ended != nil {
			err = ended // the cause: the deadline that broke the exchange was set by its end
		}
		return nil, fmt.Errorf("send %v to broker %s: %w", req.ApiKey(), c.Addr, err)
	}
	c.used = time.Now()
	return answer, nil
}

func (c *Conn) exchange(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := req.ApiKey()
	version, ok := c.Versions[key]
	if !ok {
		return nil, errors.New("the broker has no version of this request in common with the relay")
	}
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.net.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // a dead connection has failed the exchange already
	})
	defer func() {
		if !stop() {
			c.Close() // the deadline in the past may come at any time from now on
		}
	}()
	c.last++
	c.gather = gather{to: c.net, pages: c.gather.pages[:0]}
	if err := protocol.WriteRequest(&c.gather, version, c.last, c.clientID, req); err != nil {
		return nil, err
	}
	if err := c.checkFrame(key); err != nil {
		return nil, err
	}
	if err := c.readFrame(); err != nil {
		return nil, err
	}
	if key == protocol.Produce {
		return &c.produced, readProduced(c.frame[8:], version, &c.produced)
	}
	if err := kafkaguard.Check(c.frame[8:], key, version, maxMemory); err != nil {
		return nil, err
	}
	_, answer, err := protocol.ReadResponse(bytes.NewReader(c.frame), key, version)
	if res, ok := answer.(*metadata.Response); ok && version < 7 {
		forgetEpochs(res)
	}
	return answer, err
}

// Close ends the connection. A request under way fails.
func (c *Conn) Close() {
	if !c.closed.Swap(true) {
		c.net.Close()
	}
}

// forgetEpochs marks leaders' epochs as missing in metadata without them (before v7): kafka-go
// leaves 0.
func forgetEpochs(res *metadata.Response) {
	for _, topic := range res.Topics {
		for i := range topic.Partitions {
			topic.Partitions[i].LeaderEpoch = -1
		}
	}
}
