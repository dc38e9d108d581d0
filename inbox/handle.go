// How one message is processed: the transaction that has its effect, what happens when that fails,
// and the methods for packages that receive messages.

package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
)

// handleMessage processes a message. When that fails it publishes the message for a later attempt,
// or as a dead letter. After outcomeFailed the message must be delivered again. After every other
// outcome the broker may get its acknowledgement.
func (in *Inbox) handleMessage(ctx context.Context, m Message, p Publisher) (outcome, error) {
	done, err := in.process(ctx, m)
	if err == nil {
		return done, nil
	}
	var away *unavailableError
	if ctx.Err() != nil || errors.As(err, &away) { // this says nothing about the message itself
		return outcomeFailed, err
	}
	f := in.failureOf(m, err)
	in.metrics.failures.WithLabelValues(string(f.Class)).Inc()
	if f.Level > 0 {
		switch published := p.Retry(ctx, m, f); {
		case published == nil:
			in.metrics.retries.WithLabelValues(LevelName(f.Level)).Inc()
			in.failureLog(ctx, m, f, err).Warn("processing failed, another attempt follows", "attempt", f.Attempts, "after", f.Level)
			return outcomeRetry, err
		case !errors.Is(published, ErrPermanent):
			return outcomeFailed, fmt.Errorf("publish for a later attempt: %w", published)
		default: // the broker will never take the message
			err = fmt.Errorf("%w; publish for a later attempt: %w", err, published)
			f.Level, f.Reason = 0, reasonOf(err)
		}
	}
	if published := p.DeadLetter(ctx, m, f); published != nil {
		in.metrics.deadLettersFailed.Inc()
		return outcomeFailed, fmt.Errorf("publish as a dead letter: %w", published)
	}
	in.metrics.deadLetters.Inc()
	in.failureLog(ctx, m, f, err).Error("processing failed, the message is a dead letter", "attempts", f.Attempts)
	return outcomeDeadLetter, err
}

const (
	// databasePatience is how long a message waits in its place for the database. After that all
	// messages go back to the broker, which does not wait for ever: RabbitMQ closes a channel after
	// 30 minutes.
	databasePatience = 5 * time.Minute
	// maxRepeats is how often an attempt is repeated at once before it counts as failed.
	maxRepeats = 3
	// handlerOvertime is how much longer than Config.Timeout a handler may run before the log says
	// that it still runs.
	handlerOvertime = 5 * time.Second
)

// process tries a message until its effect is committed, or the attempt has failed. While the
// database does not answer it waits, and that spends no attempt.
func (in *Inbox) process(ctx context.Context, m Message) (outcome, error) {
	if err := checkID(m.ID); err != nil {
		return outcomeFailed, err
	}
	began := time.Now()
	pause := newBackoff()
	for repeats := 0; ; {
		done, err := in.attempt(ctx, m)
		var away *unavailableError
		var lost *lostError
		if ctx.Err() == nil && !errors.As(err, &away) && !errors.As(err, &lost) {
			in.database.noteUp()
		}
		switch {
		case err == nil:
			return done, nil
		case ctx.Err() != nil:
			return outcomeFailed, withCause(ctx, err)
		case away != nil:
			in.logWait(ctx, m, away)
			if time.Since(began) > databasePatience {
				return outcomeFailed, err
			}
		case isRepeatable(err) && repeats < maxRepeats:
			repeats++
		default:
			return outcomeFailed, err
		}
		if err := pause.Pause(ctx); err != nil {
			return outcomeFailed, err
		}
	}
}

// logWait logs what a message waits for: the database, or only the record of its event. The record
// may be locked by a session that has not ended: of a slow handler, or of a process that is frozen.
func (in *Inbox) logWait(ctx context.Context, m Message, away *unavailableError) {
	if away.late && in.checkDatabase(ctx) == nil {
		in.database.noteUp()
		in.messageLog(ctx, m).Warn("another session holds the record of the event, its processing waits", "error", away)
		return
	}
	in.database.noteDown(away)
}

// attempt processes a message in one transaction.
//
// Why the effect is there once. The record of the event is inserted first, under its primary key. A
// second transaction for the same event waits there until this one has ended, whoever made it: then
// it finds the record and has no effect, or this one was rolled back, with all that the handler
// wrote. When the connection is lost in COMMIT nobody knows which of the two it was; the next
// attempt reads it. Only after COMMIT is the message acknowledged. If the acknowledgement is lost,
// the message comes again and finds the record.
func (in *Inbox) attempt(ctx context.Context, m Message) (outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, in.cfg.Timeout, errTimeout)
	defer cancel()
	tx, err := in.db.begin(ctx)
	if err != nil {
		return outcomeFailed, &unavailableError{err: fmt.Errorf("begin a transaction: %w", err)}
	}
	defer tx.rollback(ctx)
	content := fingerprint(m)
	first, err := in.recordEvent(ctx, tx, m.ID, content)
	switch {
	case err == nil:
	// the database does not take the id as text, and the message has no other id
	case hasSQLState(err, "22"):
		return outcomeFailed, permanentError{err}
	case hasSQLState(err, "40"): // a serialization failure
		return outcomeFailed, err
	default:
		return outcomeFailed, &unavailableError{err: err, late: ctx.Err() != nil}
	}
	if !first {
		return outcomeDuplicate, in.confirmRecord(ctx, tx, m, content)
	}
	err = in.callHandler(ctx, tx, m)
	left := tx.stateAfterHandler(ctx)
	if left == txEnded { // whatever the handler has returned
		return outcomeFailed, endedError(err)
	}
	if err == nil && left == txLost {
		err = errConnectionLost
	}
	if err != nil {
		err = withCause(ctx, err)
		if ctx.Err() == nil && left == txLost || hasSQLState(err, "53", "57P", "58") {
			return outcomeFailed, &lostError{"call the handler", err}
		}
		return outcomeFailed, err
	}
	if ctx.Err() != nil { // the handler did not notice it, and COMMIT would fail, too
		return outcomeFailed, context.Cause(ctx)
	}
	if left == txAborted {
		return outcomeFailed, errIgnored
	}
	switch err := tx.commit(ctx); {
	case err == nil && ctx.Err() == nil:
		return outcomeSuccess, nil
	case err == nil: // the server may not have waited for the standby: see confirmRecord
		return outcomeFailed, &lostError{"commit", context.Cause(ctx)}
	case hasSQLState(err, "23", "40", "P0"): // a deferred constraint, a serialization failure
		return outcomeFailed, err
	default:
		return outcomeFailed, &lostError{"commit", withCause(ctx, err)}
	}
}

// confirmRecord returns nil when the event of m is recorded and its record lasts.
//
// Why it commits. That the record is seen does not say that a synchronous standby has it: COMMIT
// waits for one, and when that takes too long we give up the wait, while the server keeps the
// transaction. A promotion would undo it. So this transaction writes something, too: a logical
// message that means nothing. The standby confirms positions in the log in their order, and ours is
// behind that of the record: once this COMMIT has returned, the record is where it must be.
//
// An error says that the id is recorded for another event. Ids that are counted come again when a
// sequence is reset, or from a second outbox table: such an event has had no effect.
func (in *Inbox) confirmRecord(ctx context.Context, tx transaction, m Message, content []byte) error {
	var same bool
	err := tx.queryRow(ctx, in.sql.compareRecord, []any{in.cfg.Service, m.ID, content}, &same)
	switch {
	case errors.Is(err, sql.ErrNoRows): // it was pruned meanwhile, so it is old
		return nil
	case err != nil:
		return &unavailableError{err: fmt.Errorf("read an event in %s: %w", in.cfg.Table, err)}
	case !same:
		return permanentf("an event with another content was processed under this id, and ids must never come again")
	}
	err = tx.commit(ctx)
	if err == nil { // a driver that cancels the wait gets the answer as usual
		err = context.Cause(ctx)
	}
	switch {
	case err == nil, hasSQLState(err, "40"): // a serialization failure
		return err
	default:
		return &unavailableError{err: fmt.Errorf("make sure of an event in %s, also on a synchronous standby: %w", in.cfg.Table, err)}
	}
}

// callHandler calls the handler, and returns a panic of it as an error.
func (in *Inbox) callHandler(ctx context.Context, tx transaction, m Message) (err error) {
	in.metrics.inProgress.Inc()
	defer in.metrics.inProgress.Dec()
	defer in.watchHandler(ctx, m)()
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return tx.callHandler(ctx, m)
}

// watchHandler logs each minute that a handler still runs after its time is over. The caller calls
// returned when the handler has returned.
func (in *Inbox) watchHandler(ctx context.Context, m Message) (returned func()) {
	began, over := time.Now(), make(chan struct{})
	timer := time.AfterFunc(in.cfg.Timeout+handlerOvertime, func() {
		again := time.NewTicker(time.Minute)
		defer again.Stop()
		for {
			in.messageLog(ctx, m).Error("the handler still runs after Timeout, and its message waits: it must end when ctx does", "for", time.Since(began).Round(time.Second))
			select {
			case <-again.C:
			case <-over:
				return
			}
		}
	})
	return func() {
		timer.Stop()
		close(over)
	}
}

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
	ctx, span := in.startSpan(ctx, t.system, m)
	if m.Attempt > 1 && m.Attempt-2 < len(in.cfg.Levels) {
		in.metrics.returned.WithLabelValues(LevelName(in.cfg.Levels[m.Attempt-2])).Inc()
	}
	began := time.Now()
	o, err := in.handleMessage(ctx, m, p)
	in.metrics.countDelivery(o, time.Since(began), m.Committed)
	endSpan(span, o, err)
	if o == outcomeFailed {
		return err
	}
	return nil
}

// Remembers reports whether there is a record of an event that the service has processed.
func (t *Transport) Remembers(ctx context.Context) (found bool, err error) {
	in := t.in
	if err := in.db.queryRow(ctx, in.sql.hasRecords, []any{in.cfg.Service}, &found); err != nil {
		return false, fmt.Errorf("find a record in %s: %w", in.cfg.Table, err)
	}
	return found, nil
}

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
