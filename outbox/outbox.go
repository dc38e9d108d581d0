// Package outbox writes events in the transaction that changes the caller's own tables. Either both
// are committed or neither is, and cdc-relay publishes what was committed.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
//			return err
//		}
//		placed := outbox.Event{Aggregate: "order", Key: id, Type: "created", Payload: order}
//		return outbox.Write(ctx, tx, placed)
//	})
//
// There are three ways: [Write] inserts into the outbox table with pgx, [WriteSQL] with
// database/sql, and [Emit] and [EmitSQL] write logical messages to the WAL, without a table. The
// functions of the package use the table public names by default, and the columns that [Schema]
// creates; a [Writer] of [New] knows others.
//
// All of them take a transaction and never a pool or a connection: such a call does not compile. An
// event that is written in a transaction of its own may be published although the change is rolled
// back, or be lost although the change is committed.
//
// # Order
//
// The events of one aggregate and key are delivered in the order in which their transactions
// commit, and within a transaction in the order of the calls and of their arguments. Two
// transactions that write events of one key must not run side by side, else it is their commits
// that decide: lock the row that the key names first, as SELECT ... FOR UPDATE or an UPDATE does.
//
// # Tests
//
// The package outbox/outboxtest compares what a transaction has written with what a test expects.
//
// # Errors
//
// An event that the database, the relay or the broker would refuse is refused here, before a
// statement is sent: the error is [ErrInvalid], it names event, field and limit, and the
// transaction can go on. Any other error comes from the database and is wrapped: the transaction is
// aborted, as after every failed statement.
package outbox

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Event is one event. Write and Emit do not change it, and keep nothing of it.
type Event struct {
	// ID identifies the event for ever: every delivery of it has this id, and consumers deduplicate
	// by it. It orders nothing. Empty: a new UUID of version 7. The id of the table that Schema
	// creates is of type uuid; a logical message, or a table of your own, may have any text of 255
	// bytes at most.
	//
	// Set it if you try again when the answer to COMMIT was lost, to the same id each time: the
	// event may be there already.
	ID string
	// Aggregate is the kind of thing that the event is about, such as "order". By default the relay
	// makes the routing key "order.created" of aggregate and type on RabbitMQ, and the topic
	// "outbox.event.order" on Kafka, where only a-z, A-Z, 0-9, '.', '_' and '-' are allowed in
	// it.
	Aggregate string
	// Key names the one thing that the event is about: the events of one aggregate and key are
	// delivered in order. Empty: the event has no order.
	Key string
	// Type is what has happened, such as "created". With Aggregate and the dot between them it has
	// at most 255 bytes.
	Type string
	// Payload is the body. A json.RawMessage or a []byte is JSON already, and checked; anything
	// else is encoded by json.Marshal. A string is refused, because it is not clear whether it is
	// JSON: json.RawMessage(text) is for text that is. So is all that is empty or encoded as null,
	// and nil first of all: a forgotten payload is no tombstone. For one there is Tombstone.
	//
	// The column is of type jsonb, json or text. A jsonb changes the order of members, spaces and
	// the form of numbers; of a name that is there twice it keeps the last one.
	Payload any
	// Headers become headers of the message. The names that the relay writes itself (such as
	// "aggregate_id", "id" and "traceparent"), that consumers write when an event fails
	// ("x-retry-count", "attempts", "failed_at" and more) and that steer RabbitMQ ("CC", "x-delay"
	// and more, see Config.AllowHeaders) are refused. Together with ID, Aggregate, Key and Type
	// they have at most 127 KiB.
	Headers map[string]string
}

// Tombstone is the Payload of an event without a body: NULL in the table and in a logical message,
// a null value on Kafka, an empty body on RabbitMQ. A compacted topic then removes what it has of
// the event's key: an event with a Tombstone needs a Key, which must be the one that the earlier
// events of the same thing had. An event that only has nothing more to say takes struct{}{}, which
// is "{}".
var Tombstone tombstone

// tombstone has one value, so that nobody can set Tombstone to another one.
type tombstone struct{}

// IsTombstone names it to packages that do not import this one: inbox/inboxtest asks for it.
func (tombstone) IsTombstone() {}

// MarshalJSON refuses what is not Tombstone itself but has it, such as a pointer to it.
func (tombstone) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a tombstone has no JSON: give outbox.Tombstone itself as the payload")
}

// defaultWriter is the writer of the package's functions.
var defaultWriter = mustNew(Config{})

// Write inserts events into the table outbox in the caller's transaction: 1,000 a statement, in the
// order of the arguments, which is the order of delivery of those with one aggregate and key.
// Without events it does nothing. Of the span in ctx it knows nothing: see Config.Trace.
//
// The error is ErrInvalid if an event can never be delivered; no statement was sent then. Any other
// error leaves tx aborted.
func Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return defaultWriter.Write(ctx, tx, events...)
}

// WriteSQL is Write for a transaction of database/sql, with any driver for PostgreSQL.
func WriteSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return defaultWriter.WriteSQL(ctx, tx, events...)
}

// Emit writes events as logical messages with the prefix "outbox". They are in the WAL and in no
// table, are sent if the caller's transaction commits, and have their place in its order, as with
// Write. No table grows and none is cleaned up. But no query finds them, and those of a slot that
// was lost cannot be sent again.
//
// A relay must have source.message_prefix: outbox before the first message is emitted: PostgreSQL
// keeps no message for a relay that does not ask for it.
func Emit(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return defaultWriter.Emit(ctx, tx, events...)
}

// EmitSQL is Emit for a transaction of database/sql, with any driver for PostgreSQL.
func EmitSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return defaultWriter.EmitSQL(ctx, tx, events...)
}

// Schema is the statement that creates the table outbox if it does not exist, as "cdc-relay init
// --outbox-table" does: for a migration tool, or the tests of a service. It ends with a semicolon,
// so other statements may follow.
func Schema() string { return defaultWriter.Schema() }
