package guard

import (
	"errors"
	"testing"
	"time"
)

// What counts is the smaller one of the files and what their rows need, which are counted only when
// the files leave little room.
func TestSpace(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name        string
		before, own int64
		rows        int64
		err         error
		then        Flow // since
		wantsCount  bool
		want        int64
	}{
		{"small files", 300, 300, 100, nil, Flow{DeferredBytes: 50, WaitingBytes: 7}, false, 357},
		{"large files, few rows", 2000, 2000, 100, nil, Flow{DeferredBytes: 50, WaitingBytes: 7}, true, 157},
		{"they are used again", 2000, 2100, 100, nil, Flow{}, true, 100},
		{"the space is not free after all", 2000, 2101, 100, nil, Flow{}, false, 2101},
		{"half of it is free", 600, 700, 100, nil, Flow{}, true, 100},
		{"the free space is used up", 600, 701, 100, nil, Flow{}, false, 701},
		{"files that grow to the limit", 0, 1001, 800, nil, Flow{}, false, 1001},
		{"rows need more than they take", 950, 950, 1200, nil, Flow{DeferredBytes: 5}, true, 955},
		{"the count fails", 2000, 2000, 0, errors.New("takes too long"), Flow{}, true, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := space{max: 1000}
			s.noteFiles(c.before, Flow{}, true)
			s.noteFiles(c.own, Flow{}, false)
			if got := s.needsCount(now, off); got != c.wantsCount {
				t.Fatalf("the rows are to be counted: %t", got)
			}
			if c.wantsCount {
				s.noteRows(now, c.rows, Flow{}, c.err)
				if s.needsCount(now.Add(countEvery-1), full) || !s.needsCount(now.Add(countEvery), full) {
					t.Error("they are not counted once a minute")
				}
				if s.needsCount(now.Add(guardedCount-1), on) {
					t.Error("they are counted while events are deferred")
				}
			}
			if got := s.usedBytes(c.then); got != c.want {
				t.Errorf("%d bytes count, want %d", got, c.want)
			}
		})
	}
}
