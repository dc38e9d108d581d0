package slot

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
)

const segment = 16 << 20

var origin = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// sighted is where the WAL was seen, every five seconds.
func sighted(lsns ...pglogrepl.LSN) (w walTimes, now time.Time) {
	w.segment = segment
	for i, lsn := range lsns {
		now = origin.Add(time.Duration(i) * surveyEvery)
		w.addPosition(now, lsn)
	}
	return w, now
}

// A slot is told by its position, against what was seen of the WAL.
func TestSinceWhenASlotIsBehind(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		name string
		wal  []pglogrepl.LSN
		slot pglogrepl.LSN
		want int // sighting since which it is behind; -1: it is not
	}{
		{"nothing was seen yet", nil, mb, -1},
		{"caught up", []pglogrepl.LSN{mb, 2 * mb, 3 * mb}, 3 * mb, -1},
		{"ahead of what was seen", []pglogrepl.LSN{mb}, 2 * mb, -1},
		{"caught up, and nothing is written", []pglogrepl.LSN{mb, mb, mb, mb}, mb, -1},
		{"stalled, much is written", []pglogrepl.LSN{mb, 2 * mb, 3 * mb, 4 * mb}, mb, 1},
		{"stalled, and then nothing is written any more", []pglogrepl.LSN{mb, 2 * mb, 2 * mb, 2 * mb}, mb, 1},
		{"it follows two sightings behind", []pglogrepl.LSN{mb, 2 * mb, 3 * mb, 4 * mb}, 3*mb - 5000, 2},
		{"behind since the last sighting", []pglogrepl.LSN{mb, 2 * mb}, mb + 5, 1},
		{"behind before the first sighting", []pglogrepl.LSN{mb, 2 * mb}, 5, 0},
		{"checkpoints of an idle server", []pglogrepl.LSN{mb, mb + 56, mb + 296, mb + 352}, mb, -1},
		{"little, but more than that", []pglogrepl.LSN{mb, mb + 1000, mb + 2000, mb + 3000}, mb, 3},
		{"an idle server begins its next file", []pglogrepl.LSN{mb, segment + 40, segment + 300}, mb, -1},
		{"and writes to it", []pglogrepl.LSN{mb, segment + 40, segment + 5000}, mb, 2},
		{"it begins two files", []pglogrepl.LSN{mb, segment + 40, 2*segment + 40}, mb, 2},
		{"WAL, and then the next file", []pglogrepl.LSN{mb, 2 * mb, segment + 40}, mb, 1},
		{"at the very end of a file", []pglogrepl.LSN{segment, segment + 5000}, segment, 1},
		{"another timeline begins again", []pglogrepl.LSN{9 * mb, mb, 2 * mb}, mb, 2},
	} {
		w, _ := sighted(c.wal...)
		got, want := w.passedAt(c.slot), time.Time{}
		if c.want >= 0 {
			want = origin.Add(time.Duration(c.want) * surveyEvery)
		}
		if !got.Equal(want) {
			t.Errorf("%s: it is behind since %v, want %v", c.name, got, want)
		}
	}
	w, _ := sighted(1, segment+40)
	if w.segment = 0; w.passedAt(1).IsZero() {
		t.Error("with files of unknown size the next one is not known")
	}
}

// However long it is watched, what is remembered stays small, and what is told of long ago is
// nearly right.
func TestWALTimesAreThinnedOut(t *testing.T) {
	var w walTimes
	w.segment = segment
	const day = int(24 * time.Hour / surveyEvery)
	const each = 10_000 // bytes between two sightings
	at := func(i int) time.Time { return origin.Add(time.Duration(i) * surveyEvery) }
	for i := range day {
		w.addPosition(at(i), pglogrepl.LSN(each*(i+1)))
		if len(w.seen) > maxWALTimes {
			t.Fatalf("%d sightings are remembered", len(w.seen))
		}
		if i%997 != 0 && i != day-1 {
			continue
		}
		for _, behind := range []int{0, 1, 10, 500, 1000, 5000, day / 2, i} {
			seen := i - behind // the slot stands where the WAL was then, but for some bytes
			if seen < 0 {
				continue
			}
			got := w.passedAt(pglogrepl.LSN(each*(seen+1) - source.WalNoise - 1))
			early, late := at(seen), at(seen).Add(max(2*surveyEvery, at(i).Sub(at(seen))/25))
			if got.Before(early) || got.After(late) {
				t.Fatalf("after %d sightings: %d ago is told as %v, want %v to %v", i, behind, got, early, late)
			}
		}
	}
}
