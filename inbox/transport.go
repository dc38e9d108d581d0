// What a package that receives messages needs of an inbox.

package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Publisher sends a message that has failed. Both methods return nil only once the broker has
// confirmed that it keeps the message: then the delivery is acknowledged.
type Publisher interface {
	// Retry has the message delivered again after f.Level. An error that wraps ErrPermanent says
	// that the broker will never take it: then it is a dead letter.
	Retry(ctx context.Context, m Message, f Failure) error
	// DeadLetter gives the message up until somebody replays it.
	DeadLetter(ctx context.Context, m Message, f Failure) error
}

// Transport is an Inbox for who writes a package that receives messages from a broker, as
// inbox/rabbit does: services do not need it.
type Transport struct {
	in     *Inbox
	system string
}

// Transport returns the side of the inbox that receives. system is the broker's name in spans, such
// as "rabbitmq".
func (in *Inbox) Transport(system string) *Transport { return &Transport{in, system} }

// Handle processes a message. It returns nil when the delivery may be acknowledged: the effect is
// committed, or was before, or p has confirmed that it keeps the message. After an error the
// message must be delivered again: end the session with the broker, and start with Ready.
//
// Messages with the same key must be handled one after another, in their order.
func (t *Transport) Handle(ctx context.Context, m Message, p Publisher) error {
	in := t.in
	ctx, span := in.begin(ctx, t.system, m)
	if m.Attempt > 1 && m.Attempt-2 < len(in.cfg.Levels) {
		in.metrics.returned.WithLabelValues(LevelName(in.cfg.Levels[m.Attempt-2])).Inc()
	}
	began := time.Now()
	o, err := in.handle(ctx, m, p)
	in.metrics.done(o, time.Since(began), m.Committed)
	end(span, o, err)
	if o == failed {
		return err
	}
	return nil
}

// Ready waits until the database can record events. It returns an error for what waiting does not
// cure, such as a missing table, and when ctx ends. Call it before messages are asked for: what was
// delivered and cannot be processed is delivered again, and brokers count that.
func (t *Transport) Ready(ctx context.Context) error { return t.in.ready(ctx) }

// Remembers is whether there is a record of an event that the service has processed.
func (t *Transport) Remembers(ctx context.Context) (found bool, err error) {
	in := t.in
	if err := in.cfg.Pool.QueryRow(ctx, in.sql.Load().remembers, in.cfg.Service).Scan(&found); err != nil {
		return false, fmt.Errorf("find a record in %s: %w", in.cfg.Table, err)
	}
	return found, nil
}

// Prune deletes old records from time to time, until ctx ends.
func (t *Transport) Prune(ctx context.Context) { t.in.prune(ctx) }

// Waiting reports how many messages wait in a queue or topic of the service.
func (t *Transport) Waiting(queue string, n int64) {
	t.in.metrics.waiting.WithLabelValues(queue).Set(float64(n))
}

// BrokerUp reports whether the broker delivers.
func (t *Transport) BrokerUp(up bool) {
	value := 0.0
	if up {
		value = 1
	}
	t.in.metrics.brokerUp.Set(value)
}

// Service is Config.Service.
func (t *Transport) Service() string { return t.in.cfg.Service }

// Levels are the pauses between attempts: Config.Levels.
func (t *Transport) Levels() []time.Duration { return slices.Clone(t.in.cfg.Levels) }

// Concurrency is how many messages may be handled at once: Config.Concurrency.
func (t *Transport) Concurrency() int { return t.in.cfg.Concurrency }

// Grace is how long handlers may go on after a stop: Config.Grace.
func (t *Transport) Grace() time.Duration { return t.in.cfg.Grace }

// Log is Config.Log, with the service.
func (t *Transport) Log() *slog.Logger { return t.in.cfg.Log }
