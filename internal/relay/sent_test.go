package relay

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// TestOnlyConfirmedRowsAreRecorded: not one that is deferred, whose row in the retry table knows
// it, nor one that does not say which transaction wrote it.
func TestOnlyConfirmedRowsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, table := sent.NewRecorder(), &shelf{}
		b := start(t, 1, Config{Sent: rec, RetryTable: table, Ordering: Pipelined})
		if err := b.Begin(1100, 7); err != nil {
			t.Fatal(err)
		}
		for i, id := range []string{"confirmed", "refused", "without", "confirmed too"} {
			ev := event.Event{
				Position: event.Position{Commit: 1100, Index: uint32(i)}, CommitTime: time.Now(), ID: []byte(id), Key: []byte(id), Ordered: true, Hash: uint64(i),
				Origin: event.Origin{Relation: 42, Tx: 7},
			}
			if id == "without" {
				ev.Origin.Tx = 0
			}
			if err := b.Event(t.Context(), &ev); err != nil {
				t.Fatal(err)
			}
		}
		b.Line.Commit(1110)
		b.Line.Wake(true)
		synctest.Wait()
		if entries, _ := rec.TakeEntries(); len(entries) > 0 {
			t.Errorf("recorded before the confirm: %v", entries)
		}
		b.sink.reply(0, nil, map[string]sink.Outcome{"refused": {State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: "too_large", Destination: "x"}}})
		synctest.Wait()
		b.Committed(table.take(0))
		synctest.Wait()
		var want, got []string
		for _, id := range []string{"confirmed", "confirmed too"} {
			digest := sent.Digest(7, []byte(id))
			want = append(want, fmt.Sprint(sent.Entry{Relation: 42, Tx: 7, Digest: digest}))
		}
		entries, left := rec.TakeEntries()
		for _, e := range entries {
			got = append(got, fmt.Sprint(e))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || left != 0 {
			t.Errorf("recorded are %v, want %v", got, want)
		}
		if mark := b.Watermark(); mark.LSN != 1110 {
			t.Errorf("the watermark is %s", mark.LSN)
		}
	})
}
