// Package sent is the sent set: which rows of the outbox tables the broker has confirmed. The relay
// records it in cdc_relay.sent. Whoever deletes a row, or tells an operator that a row was
// delivered, asks it first.
//
// A row is named by three things that the stream and the table both have:
//
//   - the relation, by its OID as the stream names it: the table, or a partitioned parent of it;
//   - the transaction that wrote it, from a column of the row (outbox.transaction). A trigger sets
//     it at every INSERT to pg_current_xact_id(), whatever the statement says;
//   - the event's id.
//
// An entry is added when the broker has confirmed an event. For a row of the retry table, and for a
// dead letter, it is added in the transaction that removes that row after the confirm. So an entry
// says: an event with this id, written by this transaction into this relation, was delivered.
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
// So an entry may stand for several rows of one transaction, if the transaction wrote an id twice
// or ids were changed since. To every consumer these rows are one event. Where it matters which of
// them was confirmed, nothing is deleted: retention deletes no row of a transaction that has an
// unsettled event or an open dead letter (see package retention). Entries are digests of 64 bits:
// that an unsent row has the digest of another row of the same relation and of a transaction near
// it (see ChunkBits) is less likely than 1 in 10^14.
//
// Numbers of transactions may be given again after a dump was restored or by pg_resetwal. Then a
// row with an old number has another id than the rows that had it before, so it is not taken for
// sent, and rows keep their numbers. No entry depends on clocks, on xmin, or on what the catalogue
// said at some time.
//
// But some entries are an operator's word that the rows which came from another server were
// delivered there (InsertByWordSQL). Which rows came from there, xmin and the catalogue say
// (UnsentSQL). Such entries keep recover from sending these rows again, and nothing is deleted by
// them.
//
// A delivery that is not recorded is only not known to anybody. A crash between the confirm and the
// record cannot lose an entry, because no position is reported to the slot before the entries of
// all events below it are durable (session.RaiseFlushLimit), so these events come again. Rows
// without the column, and those whose column does not have the row's transaction, are delivered as
// ever and never recorded.
package sent

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"
)

// ChunkBits is the binary logarithm of how many transactions a chunk has. Entries are stored by
// chunk.
const ChunkBits = 13

// Chunk is the chunk of a transaction.
func Chunk(tx uint64) int64 { return int64(tx >> ChunkBits) }

// Entry names a row that was sent.
type Entry struct {
	Relation uint32 // OID, as the stream names it
	Tx       uint64 // of the row's writer, with its epoch
	Digest   int64
}

// Digest is the digest of a row: 64 bits of the SHA-256 of its transaction and its id. In SQL it is
// DigestSQL.
func Digest(tx uint64, id []byte) int64 { return new(Digester).Digest(tx, id) }

// Digester makes digests one after another, without an allocation. The zero value is ready.
type Digester struct {
	tx   uint64
	buf  []byte
	from int // behind tx and the slash in buf; 0: they are not there yet
}

// Digest is the function Digest.
func (d *Digester) Digest(tx uint64, id []byte) int64 {
	if d.from == 0 || d.tx != tx {
		d.buf = append(strconv.AppendUint(d.buf[:0], tx, 10), '/')
		d.tx, d.from = tx, len(d.buf)
	}
	d.buf = append(d.buf[:d.from], id...)
	sum := sha256.Sum256(d.buf)
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// DigestSQL is the SQL of Digest. tx is an expression of type bigint, id one of type bytea: the
// event's id in UTF-8.
func DigestSQL(tx, id string) string {
	return "('x' || encode(substring(sha256(convert_to(" + tx + "::text || '/', 'UTF8') || " + id + ") FOR 8), 'hex'))::bit(64)::bigint"
}

// maxPending bounds the entries that wait to be written: 6 MiB. They are more than that only while
// the database does not answer and the broker does.
const maxPending = 256 << 10

// flushAt is how many entries are written at once although no report to the slot waits for them.
const flushAt = 16 << 10

// Recorder collects the entries of one term until they are written. Lanes add to it, and whoever
// raises the flush limit takes from it.
type Recorder struct {
	mu      sync.Mutex
	pending []Entry
	spare   []Entry // the memory of entries that are durable, for the next
	leftOut int     // entries that were left out since the last TakeEntries
	added   uint64  // entries, in all
	written uint64  // of added, the entries that are recorded, or were left out later
	full    chan struct{}
}

// NewRecorder makes an empty recorder.
func NewRecorder() *Recorder { return &Recorder{full: make(chan struct{}, 1)} }

// Add adds entries. A lane calls it before their events are settled: so whoever first reads the
// watermark and then calls TakeEntries has the entries of all events below the watermark. Entries
// above maxPending are left out: their rows are not known to be sent, which delays nothing and
// loses nothing.
func (r *Recorder) Add(entries []Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := min(len(entries), maxPending-len(r.pending))
	r.leftOut += len(entries) - room
	if cap(r.pending)-len(r.pending) < room {
		// doubled: append would grow it in many steps
		r.pending = slices.Grow(r.pending, max(room, len(r.pending)))
	}
	r.pending = append(r.pending, entries[:room]...)
	r.added += uint64(room)
	if len(r.pending) >= flushAt {
		select {
		case r.full <- struct{}{}:
		default:
		}
	}
}

// Full delivers when there are so many entries that they should be written, whatever the watermark
// does: a blocked destination may keep it where it is for a week.
func (r *Recorder) Full() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.full
}

// TakeEntries removes all entries, and returns how many were left out since the last call.
func (r *Recorder) TakeEntries() (entries []Entry, left int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, left = r.pending, r.leftOut
	r.pending, r.spare, r.leftOut = r.spare[:0], nil, 0
	return entries, left
}

// MarkWritten tells that entries that were taken are durable. The recorder uses their memory again,
// unless it has room for many more entries than are usual.
func (r *Recorder) MarkWritten(entries []Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written += uint64(len(entries))
	if cap(entries) <= 2*flushAt {
		r.spare = entries
	}
}

// Counts are how many entries were added, and how many of these no longer wait. Once done has
// reached an earlier value of added, all entries of that time are durable, apart from those left
// out.
func (r *Recorder) Counts() (added, done uint64) {
	if r == nil {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.added, r.written
}

// ReturnEntries gives back what TakeEntries returned and could not be written. Beyond maxPending
// the newest entries, which came meanwhile, are left out. It does no harm if an entry is written
// twice.
func (r *Recorder) ReturnEntries(entries []Entry, leftOut int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	room := max(0, maxPending-len(entries))
	dropped := max(0, len(r.pending)-room)
	r.leftOut += leftOut + dropped
	r.written += uint64(dropped)
	r.pending = append(entries, r.pending[:min(len(r.pending), room)]...)
}

// Part are entries of one relation and chunk, as a row of cdc_relay.sent has them.
type Part struct {
	Relation    uint32
	Chunk       int64
	First, Last uint64 // the lowest and the highest transaction
	Digests     Digests
}

// Digests are a parameter of type bigint[].
type Digests []int64

// RegisterDigests has the connection of m encode Digests at once. Without it pgx encodes each
// number by itself, into a parameter that grows in many small steps.
func RegisterDigests(m *pgtype.Map) {
	if array, ok := m.TypeForOID(pgtype.Int8ArrayOID); ok {
		m.RegisterType(&pgtype.Type{Name: array.Name, OID: array.OID, Codec: digestsCodec{array.Codec}})
	}
}

// digestsCodec is pgx's codec of bigint[], and for Digests its own.
type digestsCodec struct{ pgtype.Codec }

// PlanEncode implements pgtype.Codec.
func (c digestsCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(Digests); ok && format == pgtype.BinaryFormatCode {
		return digestsPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

// digestsPlan encodes Digests.
type digestsPlan struct{}

// Encode implements pgtype.EncodePlan, as array_recv of PostgreSQL reads it: one dimension, no
// NULL, the type of the elements, how many these are, the index of the first, and each one behind
// its length.
func (digestsPlan) Encode(value any, buf []byte) ([]byte, error) {
	digests := value.(Digests) //nolint:forcetypeassert // as PlanEncode saw
	buf = slices.Grow(buf, 20+12*len(digests))
	for _, head := range []uint32{1, 0, pgtype.Int8OID, uint32(len(digests)), 1} {
		buf = binary.BigEndian.AppendUint32(buf, head)
	}
	for _, d := range digests {
		buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(d))
	}
	return buf, nil
}

// maxPart bounds the digests of a part: 64 KiB.
const maxPart = 8 << 10

// Parts sorts the entries by relation and chunk, and makes rows of cdc_relay.sent of them. Mostly
// all are of one chunk, and the sort is one pass.
func Parts(entries []Entry) (parts []Part) {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Relation, b.Relation), cmp.Compare(Chunk(a.Tx), Chunk(b.Tx)))
	})
	digests := make(Digests, len(entries))
	for i, e := range entries {
		digests[i] = e.Digest
		last := len(parts) - 1
		if last < 0 || parts[last].Relation != e.Relation || parts[last].Chunk != Chunk(e.Tx) || len(parts[last].Digests) == maxPart {
			parts = append(parts, Part{Relation: e.Relation, Chunk: Chunk(e.Tx), First: e.Tx, Digests: digests[i:i]})
			last++
		}
		p := &parts[last]
		p.First, p.Last, p.Digests = min(p.First, e.Tx), max(p.Last, e.Tx), p.Digests[:len(p.Digests)+1]
	}
	return parts
}

// InsertSQL writes a part of slot $1, under the epoch $2.
const InsertSQL = `WITH fence AS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
	INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests)
	SELECT $1, $3::oid, $4, $5, $6, $7::bigint[] FROM fence`

// InsertRowsSQL is an INSERT that records the rows of a relation or subquery. Its columns are
// relation, tx and id, the id in the event's own encoding; where one of them is NULL nothing is
// recorded. The statement does not check the epoch.
func InsertRowsSQL(rows, slot string) string {
	return `INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests)
		SELECT ` + slot + `, relation::oid, tx >> ` + strconv.Itoa(ChunkBits) + `, min(tx), max(tx), array_agg(` + DigestSQL("tx", "id") + `)
		FROM ` + rows + ` WHERE relation IS NOT NULL AND tx IS NOT NULL AND id IS NOT NULL GROUP BY relation, tx >> ` + strconv.Itoa(ChunkBits)
}

// InsertByWordSQL writes a part of slot $1 by an operator's word, and not by a confirm: recover
// leaves its rows out, and they do not count as unsent. But they are never old enough to be
// deleted, and nobody is told that they were delivered, because the word may be wrong.
const InsertByWordSQL = `INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests, at) VALUES ($1, $2, $3, $4, $5, $6, 'infinity')`

// HasSQL asks whether slot $1 has recorded a digest, $4, of chunk $3 under one of the relations $2,
// by a confirm.
const HasSQL = `SELECT EXISTS (SELECT FROM cdc_relay.sent WHERE slot = $1 AND relation = ANY ($2::oid[]) AND chunk = $3 AND $4::bigint = ANY (digests) AND at < 'infinity')`
