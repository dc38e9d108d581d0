// The topology is declared, or refused with what differs.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Declare declares the queues, exchanges and bindings of the service, and leaves those that exist
// as they are. It returns an error when the broker has one of them with other settings: a list of
// what differs. Nothing is deleted. Run does the same first.
func (c *Consumer) Declare(ctx context.Context) error {
	l, err := c.connect(ctx, "declare")
	if err != nil {
		return err
	}
	defer l.close()
	return c.declare(ctx, l)
}

// differenceError is a topology that the broker has otherwise.
type differenceError struct{ lines []string }

func (e *differenceError) Error() string {
	return "declare the topology: the broker has it otherwise:\n  " + strings.Join(e.lines, "\n  ") +
		"\nRestore the configuration of the service, or delete what differs when it is empty and nobody uses it: it is then declared again"
}

// declare asks for everything even when something was refused: one error lists all differences.
func (c *Consumer) declare(ctx context.Context, l *link) error {
	defer context.AfterFunc(ctx, l.kill)() // a call of amqp091 ends with the connection only
	t, a := &c.topology, asker{link: l}
	a.exchange(t.toSelf, amqp.ExchangeDirect)
	a.exchange(t.toDeadLetters, amqp.ExchangeDirect)
	for _, b := range c.cfg.Bindings {
		a.foreignExchange(b.Exchange)
	}
	for _, q := range t.queues {
		a.ask("queue", q.name, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q.name, true, false, false, false, q.args)
			return err
		})
	}
	for _, b := range t.bindings {
		if a.err != nil || len(a.different) > 0 {
			break
		}
		a.ask("binding of", b.queue, func(ch *amqp.Channel) error { return ch.QueueBind(b.queue, b.key, b.exchange, false, nil) })
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case a.err != nil:
		return a.err
	case len(a.different) > 0:
		return &differenceError{a.different}
	}
	return nil
}

// asker asks for one thing after another, and keeps what was refused.
type asker struct {
	link      *link
	ch        *amqp.Channel
	different []string
	err       error // another one, which ends the asking
}

// ask opens a channel, if the last refusal has closed it.
func (a *asker) ask(kind, name string, question func(*amqp.Channel) error) {
	if a.err != nil {
		return
	}
	if a.ch == nil || a.ch.IsClosed() {
		if a.ch, a.err = a.link.Channel(); a.err != nil {
			return
		}
	}
	err := question(a.ch)
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.PreconditionFailed {
		a.different = append(a.different, difference(kind, name, refused.Reason))
	} else if err != nil {
		a.err = fmt.Errorf("declare %s %q: %w", kind, name, err)
	}
}

func (a *asker) exchange(name, kind string) {
	a.ask("exchange", name, func(ch *amqp.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) })
}

// foreignExchange declares the relay's exchange when it is missing. One that exists may be of any
// type.
func (a *asker) foreignExchange(name string) {
	missing := false
	a.ask("exchange", name, func(ch *amqp.Channel) error {
		err := ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil)
		var refused *amqp.Error
		if missing = errors.As(err, &refused) && refused.Code == amqp.NotFound; missing {
			return nil
		}
		return err
	})
	if !missing {
		return
	}
	if a.exchange(name, amqp.ExchangeTopic); isRefusal(a.err) {
		a.err = fmt.Errorf("there is no exchange %q: start the relay with sink.rabbitmq.declare, or let the user configure it: %w", name, a.err)
	}
}

// inequivalent is RabbitMQ's text about an argument.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)'.*: received (.+) but current is (.+)$`)

// quotedValue is how it has a value in it.
var quotedValue = regexp.MustCompile(`^(?:the value )?'([^']*)'(?: of type '[^']*')?$`)

// difference is one line of what differs.
func difference(kind, name, reason string) string {
	m := inequivalent.FindStringSubmatch(reason)
	if m == nil {
		return fmt.Sprintf("%s %q: %s", kind, name, reason)
	}
	value := func(text string) string {
		if m := quotedValue.FindStringSubmatch(text); m != nil {
			return m[1]
		}
		return text
	}
	return fmt.Sprintf("%s %q: %s: the broker has %s, the service wants %s", kind, name, m[1], value(m[3]), value(m[2]))
}
