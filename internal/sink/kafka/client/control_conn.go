// The control connection: which broker it is to, its timeouts, and a login that is refused for
// good.

package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/segmentio/kafka-go/protocol"
)

// connect ensures a connection. It keeps the present one; otherwise it tries the known brokers,
// then the configured ones.
func (c *control) connect(ctx context.Context) error {
	if c.conn != nil && c.conn.Usable() {
		return nil
	}
	c.hangUp()
	limit := min(controlDial<<min(c.fails, 2), conn.DialTimeout)
	var failures []error
	for _, addr := range c.candidates() {
		bounded, cancel := context.WithTimeout(ctx, limit)
		opened, err := c.cluster.connect(bounded, addr)
		cancel()
		if err == nil {
			c.conn, c.addr = opened, addr
			c.session++
			c.cluster.connected(c.had)
			c.had = true
			c.refused = time.Time{}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures = append(failures, err)
	}
	c.fails++
	err := errors.Join(failures...)
	c.cluster.note(None, conn.Explain(err))
	return err
}

// candidates are the addresses to try: the known brokers in random order, then the configured ones.
// The one that was just lost comes last.
func (c *control) candidates() []string {
	var all []string
	for _, addr := range c.cluster.Metadata.Load().Brokers {
		all = append(all, addr)
	}
	slices.Sort(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, addr := range c.cluster.Options.Brokers {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	if i := slices.Index(all, c.addr); i >= 0 {
		all = append(slices.Delete(all, i, i+1), c.addr)
	}
	return all
}

func (c *control) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
		c.cluster.Connections.Add(-1)
	}
}

// ask sends a request over the control connection.
func ask[R protocol.Message](ctx context.Context, c *control, req protocol.Message) (R, error) {
	res, err := conn.RoundTripAs[R](ctx, c.conn, min(ControlFirst<<min(c.slow, 4), ControlTimeout), req)
	if err != nil {
		c.slow++
		c.hangUp()
		return res, err
	}
	c.slow = 0
	return res, nil
}

// backoff is the pause after a round that found no broker.
func (c *control) backoff() time.Duration {
	d := min(25*time.Millisecond<<min(c.fails, 8), time.Second)
	if !c.refused.IsZero() {
		d = time.Second
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter is no secret
}

// refusedFor returns err, which ends run, when the login was refused for LoginTimeout and no
// connection was ever made.
func (c *control) refusedFor(err error) error {
	if c.had || !errors.Is(err, conn.ErrLogin) {
		c.refused = time.Time{}
		return nil
	}
	if c.refused.IsZero() {
		c.refused = time.Now()
	}
	if time.Since(c.refused) < LoginTimeout {
		return nil
	}
	return err
}
