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

// declare is declareOn with a connection that ctx may end: a call of amqp091 ends with it only.
func (c *Consumer) declare(ctx context.Context, l *link) error {
	defer context.AfterFunc(ctx, l.kill)()
	err := c.declareOn(l)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// declareOn asks for everything even when something was refused: one error lists all differences.
// It reports how many messages wait, and says what was missing, but for bindings: RabbitMQ does not
// tell whether it had one.
func (c *Consumer) declareOn(l *link) error {
	t, a := &c.topology, asker{link: l}
	defer a.close()
	a.exchange(t.toSelf)
	a.exchange(t.toDeadLetters)
	for _, b := range c.cfg.Bindings {
		a.foreignExchange(b.Exchange)
	}
	for _, q := range t.queues {
		if waiting := a.queue(q); a.err == nil {
			c.in.Waiting(q.name, int64(waiting))
		}
	}
	for _, b := range t.bindings {
		if a.err != nil || len(a.different) > 0 {
			break
		}
		a.ask("binding of", b.queue, func(ch *amqp.Channel) error { return ch.QueueBind(b.queue, b.key, b.exchange, false, nil) })
	}
	if a.err != nil {
		return a.err
	}
	if len(a.different) > 0 {
		return &differenceError{a.different}
	}
	if len(a.missing) > 0 {
		c.in.Log().Info("declared what the broker did not have", "missing", a.missing)
	}
	for _, name := range a.foreign {
		c.in.Log().Warn("declared an exchange of Bindings, which the broker did not have: is it the relay's?", "exchange", name)
	}
	return nil
}

// asker asks for one thing after another, and keeps what was refused.
type asker struct {
	link      *link
	ch        *amqp.Channel
	different []string
	missing   []string // queues and exchanges of the service
	foreign   []string // exchanges of others that were missing
	err       error    // another one, which ends the asking
}

// close gives the channel back: the connection may live long.
func (a *asker) close() {
	if a.ch != nil {
		_ = a.ch.Close() //nolint:errcheck // it is closed with the connection
	}
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

// isMissing is whether the broker does not know what passive asks for.
func (a *asker) isMissing(kind, name string, passive func(*amqp.Channel) error) (missing bool) {
	a.ask(kind, name, func(ch *amqp.Channel) error {
		err := passive(ch)
		var refused *amqp.Error
		if missing = errors.As(err, &refused) && refused.Code == amqp.NotFound; missing {
			return nil
		}
		return err
	})
	return missing
}

// queue declares a queue, and returns how many messages wait in it.
func (a *asker) queue(q queue) (waiting int) {
	if a.isMissing("queue", q.name, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
		return err
	}) {
		a.missing = append(a.missing, q.name)
	}
	a.ask("queue", q.name, func(ch *amqp.Channel) error {
		found, err := ch.QueueDeclare(q.name, true, false, false, false, q.args)
		waiting = found.Messages
		return err
	})
	return waiting
}

// exchange declares an exchange of the service's own.
func (a *asker) exchange(name string) {
	if a.isMissing("exchange", name, isExchange(name)) {
		a.missing = append(a.missing, name)
	}
	a.ask("exchange", name, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeDirect, true, false, false, false, nil)
	})
}

// foreignExchange declares the relay's exchange when it is missing. One that exists may be of any
// type.
func (a *asker) foreignExchange(name string) {
	if !a.isMissing("exchange", name, isExchange(name)) {
		return
	}
	a.foreign = append(a.foreign, name)
	a.ask("exchange", name, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if isRefusal(a.err) {
		a.err = fmt.Errorf("there is no exchange %q: start the relay with sink.rabbitmq.declare, or let the user configure it: %w", name, a.err)
	}
}

// isExchange asks for an exchange of any type.
func isExchange(name string) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil)
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
