// Package sent is the sent set: which rows of the outbox tables the broker has confirmed. The relay
// records it in cdc_relay.sent, and whoever deletes rows or tells an operator that one was
// delivered asks it.
//
// A row is named by three things that the stream and the table both have:
//
//   - the relation, by its OID as the stream names it: the table, or a partitioned parent of it;
//   - the transaction that wrote it, from a column of the row (outbox.transaction). A trigger sets
//     it at every INSERT to pg_current_xact_id(), whatever the statement says;
//   - the event's id.
//
// An entry is added when the broker has confirmed an event, or when a row of the retry table or a
// dead letter was confirmed later, in the transaction that removes that row. So an entry says: an
// event with this id, written by this transaction into this relation, was delivered.
//
// Why no row is taken for sent that was not. A row of a table matches an entry only if it has the
// entry's transaction and id, and lies in the entry's relation. Whatever was not streamed has no
// entry:
//
//   - rows from before the slot, from before the table was added, from a time in which it was left
//     out, skipped, detached, unlogged or swapped: their transactions and ids never came;
//   - rows of a transaction of which other rows did come: their ids did not;
//   - a row that was copied, attached or inserted again: the trigger gives it another transaction,
//     and a copy without the trigger is the row that was sent, with its id, or has another id;
//   - a row whose transaction or id was changed by an UPDATE matches no entry any more, but perhaps
//     that of another row of its transaction;
//   - another table with the same name has another OID.
//
// So an entry may stand for several rows of one transaction, if it wrote an id twice or ids were
// changed since. To every consumer they are one event, and where it matters which of them was
// confirmed nothing is deleted: of a transaction of which an event is not settled, or is an open
// dead letter (see package retention). Entries are digests of 64 bits: that an unsent row has the
// digest of another row of the same relation and of a transaction near it (see ChunkBits) is less
// likely than 1 in 10^14.
//
// Numbers of transactions may be given again after a dump was restored or by pg_resetwal. Then a
// row with an old number has another id than the rows that had it before, so it is not taken for
// sent, and rows keep their numbers. No entry depends on clocks, on xmin, or on what the catalogue
// said at some time.
//
// But some entries are an operator's word, that what came from another server was delivered there
// (InsertByWordSQL). Which rows came, xmin and the catalogue say (UnsentSQL). Such entries keep
// recover from sending these rows again, and nothing is deleted by them.
//
// What is not recorded is only not known: a crash between the confirm and the record cannot lose
// it, because no position is reported to the slot before the entries of all events below it are
// durable (session.RaiseFlushLimit), so these events come again. Rows without the column, and those
// whose transaction is not that of the row, are delivered as ever and never recorded.
package sent

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// ChunkBits is the binary logarithm of how many transactions a chunk has, by which entries are
// stored.
const ChunkBits = 13

// Chunk is the chunk of a transaction.
func Chunk(tx uint64) int64 { return int64(tx >> ChunkBits) }

// Entry is a row that was sent.
type Entry struct {
	Relation uint32 // OID, as the stream names it
	Tx       uint64 // of the row's writer, with its epoch
	Digest   int64
}

// Digest is that of a row: 64 bits of the SHA-256 of its transaction and its id. buf is reused. In
// SQL it is DigestSQL.
func Digest(tx uint64, id, buf []byte) (digest int64, _ []byte) {
	buf = strconv.AppendUint(buf[:0], tx, 10)
	buf = append(buf, '/')
	buf = append(buf, id...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:])), buf
}

// DigestSQL is the SQL of Digest. tx is an expression of type bigint, id one of type bytea: the
// event's id in UTF-8.
func DigestSQL(tx, id string) string {
	return "('x' || encode(substring(sha256(convert_to(" + tx + "::text || '/', 'UTF8') || " + id + ") FOR 8), 'hex'))::bit(64)::bigint"
}
