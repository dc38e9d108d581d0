// How messages that failed are published to the queues for a later attempt or for dead letters, and
// how dead letters are replayed.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
)

// publisher publishes messages over a connection of its own, which it opens when there is something
// to publish. A broker that is short of memory or disk stops reading from connections that publish,
// and acknowledgements must go on meanwhile. Each message has a channel to itself until it is
// confirmed.
type publisher struct {
	c *Consumer

	mu   sync.Mutex
	link *link             // nil while it is not open
	idle []*confirmChannel // channels of link that no message uses
}

// confirmChannel is a channel in confirm mode, for one message at a time.
type confirmChannel struct {
	link     *link
	ch       *amqp.Channel
	returned chan amqp.Return // receives the message when no queue is bound for it
	closed   chan *amqp.Error // receives why the broker has closed the channel
}

// errUnpublishable says that the broker does not take a message again which it has delivered
// itself.
var errUnpublishable error = unpublishableError{}

type unpublishableError struct{}

func (unpublishableError) Error() string        { return "the broker does not take the message again" }
func (unpublishableError) Is(target error) bool { return target == inbox.ErrPermanent }

// publishPatience is how long publishing is tried again. After that the session ends, and all
// messages that were delivered go back to the queue.
const publishPatience = 5 * time.Minute

// publishUntilConfirmed publishes a message, and returns nil when the broker has confirmed that a
// queue keeps it. It publishes again what was refused or is in doubt. So a queue may get the
// message twice, and the second one is a duplicate.
func (p *publisher) publishUntilConfirmed(ctx context.Context, exchange, key string, msg amqp.Publishing) error {
	began := time.Now()
	var pauses work.Backoff
	for {
		err := p.publishOnce(ctx, exchange, key, msg)
		switch {
		case err == nil, errors.Is(err, errUnpublishable):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Since(began) > publishPatience:
			return err
		}
		p.c.publishing.Failed(err)
		if err := pauses.Pause(ctx); err != nil {
			return err
		}
	}
}

// publishOnce publishes once. A broker that is short of memory or disk does not answer at all. That
// becomes an error, and the next try has another connection.
func (p *publisher) publishOnce(ctx context.Context, exchange, key string, msg amqp.Publishing) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.c.confirmWithin, fmt.Errorf("no answer within %s: is the broker short of memory or disk?", p.c.confirmWithin))
	defer cancel()
	o, err := p.takeChannel(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, o.link.kill)() // the call may wait for a broker that does not read
	err = o.publishAndWait(ctx, exchange, key, msg)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
		p.putBackChannel(o)
	case errors.Is(err, errUnpublishable):
		_ = o.ch.Close() //nolint:errcheck // the broker has closed it, or does so with the connection
	default: // also for a missing queue, which the next connection declares
		p.dropLink(o.link)
	}
	if err != nil {
		return fmt.Errorf("publish to exchange %q with routing key %q: %w", exchange, key, err)
	}
	p.c.publishing.Works()
	return nil
}

// publishAndWait publishes a message and waits for the broker's confirm. When no queue is bound for
// the message, its return comes before the confirm.
func (o *confirmChannel) publishAndWait(ctx context.Context, exchange, key string, msg amqp.Publishing) error {
	if size := tableSize(msg.Headers); size > o.link.Config.FrameSize-propertiesSize {
		return fmt.Errorf("%w: its headers have %d bytes", errUnpublishable, size)
	}
	confirm, err := o.ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, msg)
	if err != nil {
		return err
	}
	select {
	case <-confirm.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !confirm.Acked() {
		return o.refusal(len(msg.Body))
	}
	select {
	case r := <-o.returned:
		return fmt.Errorf("no queue has it: %s", r.ReplyText)
	default:
		return nil
	}
}

// refusal says why a message was not confirmed.
func (o *confirmChannel) refusal(size int) error {
	select {
	case err := <-o.closed:
		if err == nil {
			return amqp.ErrClosed
		}
		if err.Code == amqp.PreconditionFailed && strings.Contains(err.Reason, fmt.Sprintf("message size %d ", size)) {
			return fmt.Errorf("%w: %w", errUnpublishable, err)
		}
		return err
	default:
		return errors.New("the broker has refused it (nack): is a queue full?")
	}
}

// takeChannel returns a channel that no message uses. It opens the connection if there is none.
func (p *publisher) takeChannel(ctx context.Context) (*confirmChannel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil && p.link.IsClosed() {
		p.closeLink()
	}
	if p.link == nil {
		l, err := p.c.connect(ctx, "publish")
		if err != nil {
			return nil, err
		}
		if err := p.c.declare(ctx, l); err != nil {
			l.close()
			return nil, err
		}
		p.link = l
	}
	if last := len(p.idle) - 1; last >= 0 {
		o := p.idle[last]
		p.idle = p.idle[:last]
		return o, nil
	}
	return openConfirmChannel(ctx, p.link)
}

func openConfirmChannel(ctx context.Context, l *link) (*confirmChannel, error) {
	defer context.AfterFunc(ctx, l.kill)()
	ch, err := l.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	return &confirmChannel{l, ch, ch.NotifyReturn(make(chan amqp.Return, 1)), ch.NotifyClose(make(chan *amqp.Error, 1))}, nil
}

// putBackChannel gives a channel back for the next message.
func (p *publisher) putBackChannel(o *confirmChannel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.link == p.link && !o.ch.IsClosed() {
		p.idle = append(p.idle, o)
	}
}

// dropLink closes a connection, unless that was done already.
func (p *publisher) dropLink(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l == p.link {
		p.closeLink()
	}
}

// close closes the connection.
func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLink()
}

func (p *publisher) closeLink() {
	if p.link != nil {
		p.link.close()
	}
	p.link, p.idle = nil, nil
}

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
	n, err = c.replayDeadLetters(ctx, l, f)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return n, err
}

func (c *Consumer) replayDeadLetters(ctx context.Context, l *link, f inbox.ReplayFilter) (n int, err error) {
	ch, err := l.Channel()
	if err != nil {
		return 0, fmt.Errorf("replay dead letters: %w", err)
	}
	from := c.topology.deadLetters
	found, err := ch.QueueDeclarePassive(from, true, false, false, false, nil)
	if err != nil {
		return 0, fmt.Errorf("find the dead letters: %w", err)
	}
	var o *confirmChannel
	kept := 0
	var refused error // of a message that the broker does not take; the others go on
	for range found.Messages {
		d, ok, err := ch.Get(from, false)
		if err != nil {
			return n, fmt.Errorf("read a dead letter: %w", err)
		}
		if !ok { // somebody else has taken some of them
			break
		}
		if !f.Matches(eventID(&d), d.Type, classOf(&d)) {
			kept++
			continue
		}
		if o == nil || o.ch.IsClosed() {
			o, err = openConfirmChannel(ctx, l)
		}
		if err == nil {
			err = o.publishAndWait(ctx, c.topology.returnExchange, c.topology.service, republished(&d))
		}
		if err != nil {
			err = fmt.Errorf("replay event %q: %w", eventID(&d), err)
		}
		switch {
		case errors.Is(err, errUnpublishable):
			kept, refused = kept+1, err
			continue
		case err != nil:
			return n, err
		}
		if err := d.Ack(false); err != nil {
			return n, fmt.Errorf("remove the dead letter of event %q: %w", eventID(&d), err)
		}
		if n++; n == f.Limit {
			break
		}
	}
	return n, errors.Join(refused, returnKept(ctx, ch, from, kept))
}

// returnKept gives the dead letters that were not replayed back to their places, and waits until
// they are there, so that the next replay counts them. It does not wait for long, because somebody
// else may take them at once.
func returnKept(ctx context.Context, ch *amqp.Channel, queue string, kept int) error {
	if kept == 0 {
		return ch.Close() // this waits until all acknowledgements have arrived
	}
	const all = 0
	if err := ch.Nack(all, true, true); err != nil {
		return fmt.Errorf("give dead letters back: %w", err)
	}
	var pauses work.Backoff
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

// classOf returns why a dead letter was given up: as the service wrote it, or as the broker did.
// The broker's last reason is the first entry of x-death; an earlier one may be that the message
// expired between two attempts.
func classOf(d *amqp.Delivery) inbox.Class {
	if class, ok := headerText(d.Headers[headerClass]); ok {
		return inbox.Class(class)
	}
	if deaths, ok := d.Headers["x-death"].([]any); ok && len(deaths) > 0 {
		death, _ := deaths[0].(amqp.Table)
		reason, _ := headerText(death["reason"])
		return inbox.Class(reason)
	}
	return ""
}
