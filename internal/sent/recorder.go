// The recorder: what was confirmed and is not yet durable.

package sent

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"
)

// maxPending bounds the entries that wait to be written: 6 MiB. They are more than that only while
// the database does not answer and the broker does.
const maxPending = 256 << 10

// flushAt is how many entries are written although no position waits for them.
const flushAt = 16 << 10

// Recorder collects the entries of one term. Lanes add to it, and whoever raises the flush limit
// takes from it.
type Recorder struct {
	mu      sync.Mutex
	pending []Entry
	spare   []Entry // the memory of entries that are durable, for the next
	left    int     // entries that were left out since Take
	added   uint64  // in all
	done    uint64  // of those: recorded, or left out after they were taken
	full    chan struct{}
}

// NewRecorder makes an empty recorder.
func NewRecorder() *Recorder { return &Recorder{full: make(chan struct{}, 1)} }

// Add adds entries. It is called before their events are settled: so whoever reads the watermark
// first and calls Take then has the entries of all events below it. Entries above maxPending are
// left out: their rows are not known to be sent, which delays nothing and loses nothing.
func (r *Recorder) Add(entries []Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := min(len(entries), maxPending-len(r.pending))
	r.left += len(entries) - room
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

// Take removes all entries, and returns how many were left out since the last Take.
func (r *Recorder) Take() (entries []Entry, left int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, left = r.pending, r.left
	r.pending, r.spare, r.left = r.spare[:0], nil, 0
	return entries, left
}

// Done tells that entries that were taken are durable. It takes back their memory, unless that has
// room for many more than are usual.
func (r *Recorder) Done(entries []Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += uint64(len(entries))
	if cap(entries) <= 2*flushAt {
		r.spare = entries
	}
}

// Counts are how many entries were added, and how many of them wait no more. Once done has reached
// what added was at a moment, all entries of then are durable, but for those left out.
func (r *Recorder) Counts() (added, done uint64) {
	if r == nil {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.added, r.done
}

// Return gives back entries that could not be written. To write an entry twice does no harm.
func (r *Recorder) Return(entries []Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	room := max(0, maxPending-len(entries))
	dropped := max(0, len(r.pending)-room)
	r.left += dropped
	r.done += uint64(dropped)
	r.pending = append(entries, r.pending[:min(len(r.pending), room)]...)
}

// Part are entries of one relation and chunk, as a row of cdc_relay.sent has them.
type Part struct {
	Relation    uint32
	Chunk       int64
	First, Last uint64 // the lowest and the highest transaction
	Digests     Digests
}

// Digests are a parameter of type bigint[]. pgx would allocate each number of a []int64.
type Digests []digest

type digest int64

// Dimensions implements, with Index and IndexType, pgtype.ArrayGetter.
func (d Digests) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(d)), LowerBound: 1}}
}

// Index is an element.
func (d Digests) Index(i int) any { return &d[i] }

// IndexType is an element to plan with.
func (d Digests) IndexType() any { return new(digest) }

// Int64Value implements pgtype.Int64Valuer.
func (d *digest) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*d), Valid: true}, nil
}

// maxPart bounds the digests of a part: 64 KiB.
const maxPart = 8 << 10

// Parts sorts the entries, and groups them.
func Parts(entries []Entry) (parts []Part) {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Relation, b.Relation), cmp.Compare(a.Tx, b.Tx))
	})
	digests := make(Digests, len(entries))
	for i, e := range entries {
		digests[i] = digest(e.Digest)
		last := len(parts) - 1
		if last < 0 || parts[last].Relation != e.Relation || parts[last].Chunk != Chunk(e.Tx) || len(parts[last].Digests) == maxPart {
			parts = append(parts, Part{Relation: e.Relation, Chunk: Chunk(e.Tx), First: e.Tx, Digests: digests[i:i]})
			last++
		}
		p := &parts[last]
		p.Last, p.Digests = e.Tx, p.Digests[:len(p.Digests)+1]
	}
	return parts
}

// InsertSQL writes a part of slot $1, under the epoch $2.
const InsertSQL = `WITH fence AS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
	INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests)
	SELECT $1, $3::oid, $4, $5, $6, $7::bigint[] FROM fence`

// InsertRowsSQL is an INSERT that records rows with the columns relation, tx and id, in the event's
// own encoding; where one is NULL nothing is recorded. It takes no fence of its own.
func InsertRowsSQL(rows, slot string) string {
	return `INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests)
		SELECT ` + slot + `, relation::oid, tx >> ` + strconv.Itoa(ChunkBits) + `, min(tx), max(tx), array_agg(` + DigestSQL("tx", "id") + `)
		FROM ` + rows + ` WHERE relation IS NOT NULL AND tx IS NOT NULL AND id IS NOT NULL GROUP BY relation, tx >> ` + strconv.Itoa(ChunkBits)
}

// InsertByWordSQL writes a part of slot $1 by an operator's word, and not by a confirm: recover
// leaves its rows out and they do not count as unsent. But they are never old enough to be deleted,
// and nobody is told that they were delivered: the word may be wrong.
const InsertByWordSQL = `INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests, at) VALUES ($1, $2, $3, $4, $5, $6, 'infinity')`

// HasSQL asks whether slot $1 has recorded a digest, $4, of chunk $3 under one of the relations $2,
// by a confirm.
const HasSQL = `SELECT EXISTS (SELECT FROM cdc_relay.sent WHERE slot = $1 AND relation = ANY ($2::oid[]) AND chunk = $3 AND $4::bigint = ANY (digests) AND at < 'infinity')`
