// The connection that control asks on: to whom, until when, and when the login is refused for good.

package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// connect makes sure of a connection: to the broker that it has, else to any that is known, else to those configured.
func (c *control) connect(ctx context.Context) error {
	if c.conn != nil && c.conn.usable() {
		return nil
	}
	c.hangUp()
	limit := min(controlDial<<min(c.fails, 2), dialTimeout)
	var failures []error
	for _, addr := range c.candidates() {
		conn, err := c.dial(ctx, addr, limit)
		if err == nil {
			c.conn, c.addr = conn, addr
			c.session++
			c.sink.connected(addr, c.had)
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
	c.sink.note(nil, explain(err))
	return err
}

func (c *control) dial(ctx context.Context, addr string, limit time.Duration) (wire, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.sink.connect(ctx, addr)
}

// candidates are the addresses to try: the brokers that are known, in any order, then those configured; the one that was
// just lost comes last.
func (c *control) candidates() []string {
	var all []string
	for _, addr := range c.sink.known.Load().brokers {
		all = append(all, addr)
	}
	slices.Sort(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, addr := range c.sink.cfg.Brokers {
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
		c.conn.close()
		c.conn = nil
		c.sink.connections.Add(-1)
	}
}

// over sends a request over the control connection.
func over[R protocol.Message](ctx context.Context, c *control, req protocol.Message) (R, error) {
	var zero R
	answer, err := c.conn.roundTrip(ctx, min(controlFirst<<min(c.slow, 4), controlTimeout), req)
	if err != nil {
		c.slow++
		c.hangUp()
		return zero, err
	}
	c.slow = 0
	res, ok := answer.(R)
	if !ok {
		c.hangUp()
		return zero, fmt.Errorf("broker %s: the answer is a %T", c.addr, answer)
	}
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

// refusedFor turns a login that was refused for LoginTimeout, while no connection was ever made, into the end.
func (c *control) refusedFor(err error) error {
	if c.had {
		return nil
	}
	if !errors.Is(err, errLogin) {
		c.refused = time.Time{}
		return nil
	}
	if c.refused.IsZero() {
		c.refused = time.Now()
	}
	limit := c.sink.cfg.LoginTimeout
	if time.Since(c.refused) < limit {
		return nil
	}
	return &outbox.Stop{
		Code: outbox.ExitFailure, Reason: "broker_login",
		What: fmt.Sprintf("the brokers have refused the login for %s", limit),
		Mend: "check sink.kafka.sasl", Err: errors.New(oneLine(err)),
	}
}
