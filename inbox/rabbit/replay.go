// Dead letters go back to the service.

package rabbit

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
)

// Replay publishes dead letters to the service's queue again, as if they had never failed, and
// returns how many. Each is removed from the dead letters after the broker has confirmed it: when
// Replay is cut short, one may be in both. The event has its effect once all the same, if it was
// not longer ago than inbox.Config.Keep.
//
// It looks at the dead letters that are there when it begins: what becomes one again meanwhile is
// not replayed again. It holds those that the filter does not match, unacknowledged and so not seen
// by others, until it ends; then they are in their old order. So many that are skipped make a long
// list in the broker, but not in this process. A replay that was cut short begins at the front when
// it is called again.
func (c *Consumer) Replay(ctx context.Context, f inbox.ReplayFilter) (n int, err error) {
	if err := f.Check(); err != nil {
		return 0, err
	}
	l, err := c.connect(ctx, "replay")
	if err != nil {
		return 0, err
	}
	defer l.close()
	defer context.AfterFunc(ctx, l.kill)()
	n, err = c.replay(ctx, l, f)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return n, err
}

func (c *Consumer) replay(ctx context.Context, l *link, f inbox.ReplayFilter) (n int, err error) {
	ch, err := l.Channel()
	if err != nil {
		return 0, fmt.Errorf("replay dead letters: %w", err)
	}
	from := c.topology.deadLetters
	found, err := ch.QueueDeclarePassive(from, true, false, false, false, nil)
	if err != nil {
		return 0, fmt.Errorf("find the dead letters: %w", err)
	}
	publisher := replayer{c: c, link: l}
	kept := 0
	var refused error // of one that the broker does not take: the others go on
	for range found.Messages {
		d, ok, err := ch.Get(from, false)
		if err != nil {
			return n, fmt.Errorf("read a dead letter: %w", err)
		}
		if !ok { // somebody else has taken some
			break
		}
		if !f.Matches(idOf(&d), d.Type, classOf(&d)) {
			kept++
			continue
		}
		switch err := publisher.replay(ctx, &d); {
		case errors.Is(err, errUnpublishable):
			kept, refused = kept+1, err
			continue
		case err != nil:
			return n, err
		}
		if n++; n == f.Limit {
			break
		}
	}
	return n, errors.Join(refused, giveBack(ctx, ch, from, kept))
}

// replayer has the channel on which dead letters are published.
type replayer struct {
	c      *Consumer
	link   *link
	outlet *outlet
}

// replay publishes a dead letter, and then removes it.
func (r *replayer) replay(ctx context.Context, d *amqp.Delivery) (err error) {
	if r.outlet == nil || r.outlet.ch.IsClosed() {
		r.outlet, err = newOutlet(ctx, r.link)
	}
	if err == nil {
		err = r.outlet.publish(ctx, r.c.topology.toSelf, r.c.topology.service, again(d))
	}
	if err != nil {
		return fmt.Errorf("replay event %q: %w", idOf(d), err)
	}
	if err := d.Ack(false); err != nil {
		return fmt.Errorf("remove the dead letter of event %q: %w", idOf(d), err)
	}
	return nil
}

// giveBack returns those that were kept to their places, and waits until they are there: the next
// replay counts them. It does not wait for long: somebody else may take them at once.
func giveBack(ctx context.Context, ch *amqp.Channel, queue string, kept int) error {
	if kept == 0 {
		return ch.Close() // all acknowledgements have arrived then
	}
	const all = 0
	if err := ch.Nack(all, true, true); err != nil {
		return fmt.Errorf("give dead letters back: %w", err)
	}
	var pauses wait.Backoff
	for range 6 {
		found, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return fmt.Errorf("give dead letters back: %w", err)
		}
		if found.Messages >= kept {
			break
		}
		if err := pauses.Pause(ctx); err != nil {
			return err
		}
	}
	return ch.Close()
}

// classOf is why a dead letter was given up: the service's word, or that of the broker, whose last
// one is the first of x-death. It may have said before that the message expired, between attempts.
func classOf(d *amqp.Delivery) inbox.Class {
	if class, ok := textOf(d.Headers[headerClass]); ok {
		return inbox.Class(class)
	}
	if deaths, ok := d.Headers["x-death"].([]any); ok && len(deaths) > 0 {
		death, _ := deaths[0].(amqp.Table)
		reason, _ := textOf(death["reason"])
		return inbox.Class(reason)
	}
	return ""
}
