// One message: the transaction that has its effect, and what becomes of it when that fails.

package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
)

// handle processes a message, and publishes it for later when that fails. On failed the message
// must be delivered again, on every other outcome it may be acknowledged.
func (in *Inbox) handle(ctx context.Context, m Message, p Publisher) (outcome, error) {
	done, err := in.process(ctx, m)
	if err == nil {
		return done, nil
	}
	var away *unavailableError
	if ctx.Err() != nil || errors.As(err, &away) { // says nothing about the message
		return failed, err
	}
	f := in.judge(m, err)
	in.metrics.failures.WithLabelValues(string(f.Class)).Inc()
	if f.Level > 0 {
		switch published := p.Retry(ctx, m, f); {
		case published == nil:
			in.metrics.retries.WithLabelValues(LevelName(f.Level)).Inc()
			in.log(ctx, m).Warn("processing failed, another attempt follows", "error", err, "class", f.Class, "attempt", f.Attempts, "after", f.Level)
			return retried, err
		case !errors.Is(published, ErrPermanent):
			return failed, fmt.Errorf("publish for a later attempt: %w", published)
		default: // the broker will never take it
			err = fmt.Errorf("%w; publish for a later attempt: %w", err, published)
			f.Level, f.Reason = 0, reasonOf(err)
		}
	}
	if published := p.DeadLetter(ctx, m, f); published != nil {
		in.metrics.deadLettersFailed.Inc()
		return failed, fmt.Errorf("publish as a dead letter: %w", published)
	}
	in.metrics.deadLetters.Inc()
	log := in.log(ctx, m)
	var panicked *panicError
	if errors.As(err, &panicked) {
		log = log.With("stack", string(panicked.stack))
	}
	log.Error("processing failed, the message is a dead letter", "error", err, "class", f.Class, "attempts", f.Attempts)
	return deadLettered, err
}

const (
	// patience is how long a message waits in its place for the database. Then all messages go back
	// to the broker, which does not wait for ever: RabbitMQ closes a channel after 30 minutes.
	patience = 5 * time.Minute
	// maxRepeats is how often an attempt is made again at once before it counts as failed.
	maxRepeats = 3
)

// process has the effect of a message. While the database is away it waits, and no attempt is
// spent.
func (in *Inbox) process(ctx context.Context, m Message) (outcome, error) {
	if err := checkID(m.ID); err != nil {
		return failed, err
	}
	began := time.Now()
	pause := newBackoff()
	for repeats := 0; ; {
		done, err := in.attempt(ctx, m)
		var away *unavailableError
		switch {
		case err == nil:
			return done, nil
		case ctx.Err() != nil:
			return failed, withCause(ctx, err)
		case errors.As(err, &away):
			in.database.lost(err)
			if time.Since(began) > patience {
				return failed, err
			}
		case isRepeatable(err) && repeats < maxRepeats:
			repeats++
		default:
			return failed, err
		}
		if err := pause.Pause(ctx); err != nil {
			return failed, err
		}
	}
}

// attempt is one transaction.
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
	tx, err := in.cfg.Pool.Begin(ctx)
	if err != nil {
		return failed, &unavailableError{fmt.Errorf("begin a transaction: %w", err)}
	}
	defer rollback(ctx, tx)
	content := fingerprint(m)
	first, err := in.record(ctx, tx, m.ID, content)
	switch {
	case err == nil:
		in.database.found()
	case class(err, "22", "40"): // the id is no text of this database, a serialization failure
		return failed, err
	default:
		return failed, &unavailableError{err}
	}
	if !first {
		return duplicate, in.sameEvent(ctx, tx, m, content)
	}
	if err := in.call(ctx, tx, m); err != nil {
		err = withCause(ctx, err)
		if ctx.Err() == nil && tx.Conn().IsClosed() || class(err, "53", "57P", "58") {
			return failed, &lostError{"call the handler", err}
		}
		return failed, err
	}
	if ctx.Err() != nil { // it did not notice: COMMIT would fail, too
		return failed, context.Cause(ctx)
	}
	switch tx.Conn().PgConn().TxStatus() {
	case 'E': // COMMIT would roll back
		return failed, errIgnored
	case 'I':
		return failed, errEnded
	}
	switch err := tx.Commit(ctx); {
	case err == nil:
		return success, nil
	case class(err, "23", "40", "P0"): // a deferred constraint or trigger, a serialization failure
		return failed, err
	default:
		return failed, &lostError{"commit", withCause(ctx, err)}
	}
}

// sameEvent returns an error when the id of m is recorded for another event. Ids that are counted
// come again when a sequence is reset, or from a second outbox table: such an event has had no
// effect.
func (in *Inbox) sameEvent(ctx context.Context, tx pgx.Tx, m Message, content []byte) error {
	var same bool
	err := tx.QueryRow(ctx, in.sql.recorded, in.cfg.Service, m.ID, content).Scan(&same)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it was pruned in between
		return nil
	case err != nil:
		return &unavailableError{fmt.Errorf("read an event in %s: %w", in.cfg.Table, err)}
	case !same:
		return fmt.Errorf("an event with another content was processed under this id, and ids must never come again: %w", ErrPermanent)
	}
	return nil
}

// fingerprint tells events with the same id apart.
func fingerprint(m Message) []byte {
	hash := sha256.New()
	for _, part := range []string{m.Aggregate, m.Key, m.Type} {
		hash.Write([]byte(part + "\x00"))
	}
	hash.Write(m.Payload)
	return hash.Sum(nil)[:8]
}

// call calls the handler, and returns its panic as an error.
func (in *Inbox) call(ctx context.Context, tx pgx.Tx, m Message) (err error) {
	in.metrics.inProgress.Inc()
	defer in.metrics.inProgress.Dec()
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return in.cfg.Handler(ctx, unended{tx}, m)
}

// unended is a transaction that its user cannot end.
type unended struct{ pgx.Tx }

var errUnended = errors.New("the inbox ends the transaction of a handler: return nil to commit it, an error to roll it back")

func (unended) Commit(context.Context) error   { return errUnended }
func (unended) Rollback(context.Context) error { return errUnended }
