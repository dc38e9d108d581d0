package sent

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestParts: each entry is in one part of its relation and chunk, within its bounds.
func TestParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var entries []Entry
		for range r.IntN(3 * maxPart) {
			entries = append(entries, Entry{Relation: uint32(r.IntN(3)), Tx: uint64(r.IntN(3 << ChunkBits)), Digest: r.Int64()})
		}
		var got []Entry
		for _, p := range Parts(slices.Clone(entries)) {
			if len(p.Digests) == 0 || len(p.Digests) > maxPart || p.First > p.Last || Chunk(p.First) != p.Chunk || Chunk(p.Last) != p.Chunk {
				t.Fatalf("a part of %d digests, chunk %d, from %d to %d", len(p.Digests), p.Chunk, p.First, p.Last)
			}
			for _, d := range p.Digests {
				i := slices.IndexFunc(entries, func(e Entry) bool { return e.Digest == d })
				if e := entries[i]; e.Relation != p.Relation || e.Tx < p.First || e.Tx > p.Last {
					t.Fatalf("%+v is in a part of relation %d from %d to %d", e, p.Relation, p.First, p.Last)
				}
				got = append(got, entries[i])
			}
			if len(got) > 100 { // each is looked for among all
				break
			}
		}
	}
}

// TestPartsLoseNothing: more entries of a chunk than one part takes are all in the parts.
func TestPartsLoseNothing(t *testing.T) {
	entries := make([]Entry, 2*maxPart+1)
	for i := range entries {
		entries[i].Digest = int64(i)
	}
	var sizes []int
	var got Digests
	for _, p := range Parts(slices.Clone(entries)) {
		sizes, got = append(sizes, len(p.Digests)), append(got, p.Digests...)
	}
	slices.Sort(got)
	if !slices.Equal(sizes, []int{maxPart, maxPart, 1}) || len(slices.Compact(got)) != len(entries) {
		t.Errorf("%d entries are in parts of %v digests", len(entries), sizes)
	}
}

// TestRecorder: what could not be written is written the next time, and the memory is bounded.
func TestRecorder(t *testing.T) {
	r := NewRecorder()
	some := func(n int) []Entry { return make([]Entry, n) }
	r.Add(some(1))
	select {
	case <-r.Full():
		t.Error("one entry is many")
	default:
	}
	r.Add(some(flushAt))
	<-r.Full()
	first, left := r.TakeEntries()
	if len(first) != flushAt+1 || left != 0 {
		t.Fatalf("taken are %d, and %d were left out", len(first), left)
	}
	r.Add(some(2))
	r.ReturnEntries(first, left)
	if again, left := r.TakeEntries(); len(again) != flushAt+3 || left != 0 {
		t.Errorf("after a write that failed %d are taken, %d were left out", len(again), left)
	}
	r.Add(some(maxPending + 5))
	full, left := r.TakeEntries()
	if len(full) != maxPending || left != 5 {
		t.Errorf("of too many %d are taken, %d were left out", len(full), left)
	}
	r.Add(some(3))
	r.ReturnEntries(full, left)
	if again, left := r.TakeEntries(); len(again) != maxPending || left != 8 {
		t.Errorf("after a write of too many that failed %d are taken, %d were left out", len(again), left)
	}
	if entries, left := r.TakeEntries(); len(entries)+left != 0 {
		t.Errorf("%d entries are there twice", len(entries))
	}
}

// What is written again and again takes no new memory, and a part of the sent set takes none for
// each of its digests.
func TestRecorderAllocations(t *testing.T) {
	r, m := NewRecorder(), pgtype.NewMap()
	RegisterDigests(m)
	entries := make([]Entry, maxPart)
	for i := range entries {
		entries[i].Digest = int64(i) << 32
	}
	buf := make([]byte, 0, 1<<20)
	round := func() {
		for part := range slices.Chunk(entries, 16) { // as lanes do
			r.Add(part)
		}
		taken, _ := r.TakeEntries()
		for _, p := range Parts(taken) {
			if _, err := m.Encode(pgtype.Int8ArrayOID, pgtype.BinaryFormatCode, p.Digests, buf); err != nil {
				t.Fatal(err)
			}
		}
		r.MarkWritten(taken)
	}
	round()
	round()
	if n := testing.AllocsPerRun(20, round); n > 6 {
		t.Errorf("%.0f allocations for %d entries", n, len(entries))
	}
}

// PostgreSQL gets the same bytes as for a []int64, of which pgx makes the parameter.
func TestDigestsAreAnArray(t *testing.T) {
	m := pgtype.NewMap()
	RegisterDigests(m)
	got, err := m.Encode(pgtype.Int8ArrayOID, pgtype.BinaryFormatCode, Digests{1, -1, 1 << 40}, []byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Encode(pgtype.Int8ArrayOID, pgtype.BinaryFormatCode, []int64{1, -1, 1 << 40}, []byte("before"))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, want %x, %v", got, want, err)
	}
}

// A digest does not depend on the one before it.
func TestDigester(t *testing.T) {
	var d Digester
	for _, row := range []struct {
		tx uint64
		id string
	}{{7, "a"}, {7, "another"}, {7, ""}, {71, "a"}, {7, "1/a"}, {0, "a"}, {0, "b"}} {
		if got, want := d.Digest(row.tx, []byte(row.id)), Digest(row.tx, []byte(row.id)); got != want {
			t.Errorf("%d/%s: %x, want %x", row.tx, row.id, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { d.Digest(1<<40, []byte("0190b5a4-9f5c-7000-8000-000000000000")) }); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
