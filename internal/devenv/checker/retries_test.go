package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// retryRowHistory is a history in which everything is right and much went by the retry table. One
// key a of two exchanges, and one key b, each number n committed at 1000+10n and written to a
// table, if it was, by transaction n:
//
//	a: x1 delivered, x2 a dead letter that is discarded, x3 and x4 deferred and fed, y5 delivered at once, x6 and
//	x7 delivered; b: x8 dead and replayed after x9, x9 deferred and fed.
func retryRowHistory() History {
	h := History{MaxDuplicates: 0}
	rows := map[string]Row{}
	position := func(n int64) event.Position { return event.Position{Commit: pglogrepl.LSN(1000 + 10*n)} }
	commit := func(key, exchangeOrTopic string, n int64) {
		r := Row{ID: fmt.Sprintf("%s%d", exchangeOrTopic, n), Aggregate: "order", Key: key, Seq: n, ExchangeOrTopic: exchangeOrTopic}
		rows[r.ID] = r
		h.Committed = append(h.Committed, r)
	}
	for n, exchangeOrTopic := range []string{1: "x", 2: "x", 3: "x", 4: "x", 5: "y", 6: "x", 7: "x"} {
		if n > 0 {
			commit("a", exchangeOrTopic, int64(n))
		}
	}
	commit("b", "x", 8)
	commit("b", "x", 9)
	deliver := func(id string, replay bool) {
		r := rows[id]
		h.Deliveries = append(h.Deliveries, Delivery{
			ID: id, Aggregate: r.Aggregate, Key: r.Key, Seq: r.Seq, Position: position(r.Seq), Replay: replay,
		})
	}
	stay := func(id string, until uint64) {
		n := rows[id].Seq
		h.Stays = append(h.Stays, Stay{ID: id, Position: position(n), From: uint64(n), Until: until})
	}
	mark := func(passed int64, transactions uint64, running ...uint64) {
		h.Marks = append(h.Marks, Mark{
			Flush: position(passed).Commit + 1, After: len(h.Deliveries), Snapshot: &Snapshot{Min: 1, Max: transactions, Running: running},
		})
	}
	deliver("x1", false)
	mark(1, 2)
	stay("x2", 0)
	stay("x3", 20)
	stay("x4", 21)
	mark(4, 5)
	deliver("y5", false)
	deliver("x3", false)
	mark(5, 21, 6) // x3 was taken out, x4 was not
	deliver("x4", false)
	deliver("x6", false)
	deliver("x7", false)
	stay("x8", 0)
	stay("x9", 22)
	mark(9, 22)
	deliver("x9", false)
	deliver("x8", true)
	h.RetryTable = []RetryRow{{ID: "x2", Position: position(2), State: Discarded}, {ID: "x8", Position: position(8), State: Replayed}}
	return h
}

func TestCheckPassesAGoodRetryTable(t *testing.T) {
	v := Check(retryRowHistory())
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	if v.Delivered != 8 || !slices.Equal(v.Discarded, []string{"x2"}) || !slices.Equal(v.Replayed, []string{"x8"}) {
		t.Fatalf("verdict is %s, discarded %v, replayed %v", v, v.Discarded, v.Replayed)
	}
	for _, words := range []string{"replayed 1", "discarded 1"} {
		if !strings.Contains(v.String(), words) {
			t.Errorf("the verdict does not say %q: %s", words, v)
		}
	}
}

func TestCheckAllowsWhatTheTestSays(t *testing.T) {
	position := func(h *History, id string) event.Position {
		return h.Stays[slices.IndexFunc(h.Stays, func(s Stay) bool { return s.ID == id })].Position
	}
	for name, change := range map[string]func(*History){
		"a row that is still deferred": func(h *History) {
			h.MaxDeferred = 1
			takeAway(h, "x9")
			h.Stays[len(h.Stays)-1].Until = 0
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "x9", Position: position(h, "x9"), State: Deferred})
		},
		"an open dead letter": func(h *History) { h.MaxDead, h.RetryTable[0].State = 1, Open },
		"a dead letter that was purged: its id is in the log alone": func(h *History) {
			h.RetryTable[0] = RetryRow{ID: "", Position: position(h, "x2"), State: Purged}
		},
		"a dead letter that was replayed and purged": func(h *History) { h.RetryTable[1] = RetryRow{ID: "", Position: position(h, "x8"), State: Purged} },
		"what was delivered, sent again after a crash, and deferred then": func(h *History) {
			h.MaxDuplicates, h.MaxDeferred = 1, 1
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "x1", Position: event.Position{Commit: 1010}, State: Deferred})
		},
		"a dead letter in its turn under hold": func(h *History) {
			h.Block = true
			n := len(h.Deliveries)
			h.Deliveries[n-1], h.Deliveries[n-2] = h.Deliveries[n-2], h.Deliveries[n-1]
			h.Stays[len(h.Stays)-1].Until = 23
		},
		"a table of other relays' dead letters that were purged": func(h *History) {
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "", Position: event.Position{Commit: 7}, State: Purged})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := retryRowHistory()
			change(&h)
			if err := Check(h).Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckTurnsRedForEachFaultOfTheRetryTable(t *testing.T) {
	at := func(n int64) event.Position { return event.Position{Commit: pglogrepl.LSN(1000 + 10*n)} }
	for name, fault := range map[string]struct {
		plant func(*History)
		says  string
	}{
		"an event in neither table":            {func(h *History) { h.RetryTable = h.RetryTable[1:] }, "lost: 1 (x2)"},
		"a deferred event that nobody has fed": {func(h *History) { takeAway(h, "x4") }, "lost: 1 (x4)"},
		"a replay that did not arrive":         {func(h *History) { takeAway(h, "x8") }, "lost: 1 (x8)"},
		"a row of the table that was never": {func(h *History) {
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "whose", Position: at(50), State: Deferred})
		}, "phantom (never committed): 1 (whose)"},
		"a row of the table, rolled back": {func(h *History) {
			h.RolledBack = []string{"r"}
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "r", Position: at(50), State: Open})
		}, "phantom (never committed): 1 (r)"},
		"in both tables": {func(h *History) {
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "x2", Position: at(2), State: Deferred})
		}, "in the retry table twice: 1 (x2)"},
		"at the broker and deferred": {func(h *History) {
			h.MaxDeferred = 1
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "x1", Position: at(1), State: Deferred})
		}, "at the broker and in a table: 1 (x1)"},
		"at the broker and dead": {func(h *History) {
			h.MaxDead = 1
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "x1", Position: at(1), State: Open})
		}, "at the broker and in a table: 1 (x1)"},
		"a dead letter delivered beside its replay": {func(h *History) { again(h, "x8", false) }, "at the broker and in a table: 1 (x8)"},
		"a dead letter replayed twice":              {func(h *History) { again(h, "x8", true) }, "duplicates: 1, at most 0"},
		"fed twice":                                 {func(h *History) { again(h, "x4", false) }, "duplicates: 1, at most 0"},
		"delivered though discarded":                {func(h *History) { late(h, "x2", 2) }, "at the broker and in a table: 1 (x2)"},
		"replayed out of nothing":                   {func(h *History) { h.Deliveries[index(h, "x7")].Replay = true }, "replayed unasked: 1 (x7)"},
		"something left in the retry table": {func(h *History) {
			takeAway(h, "x9")
			h.Stays[len(h.Stays)-1].Until = 0
			h.RetryTable = append(h.RetryTable, RetryRow{ID: "x9", Position: at(9), State: Deferred})
		}, "still deferred, at most 0 allowed: 1 (x9)"},
		"a dead letter where there should be none": {func(h *History) { h.RetryTable[0].State = Open }, "dead letters, at most 0 allowed: 1 (x2)"},
		"at another position in the table":         {func(h *History) { h.RetryTable[0].Position.Index++ }, "position moved: 1 (x2)"},
		"fed at another position":                  {func(h *History) { h.Deliveries[index(h, "x4")].Position.Index++ }, "position moved: 1 (x4)"},
		"a later event before what is deferred":    {func(h *History) { swap(h, "x4", "x6") }, "out of order: 1 (x4)"},
		"fed in another order":                     {func(h *History) { swap(h, "x3", "x4") }, "out of order: 1 (x3)"},
		"a dead letter late under block":           {func(h *History) { h.Block = true }, "out of order: 1 (x8)"},
		"an event behind an open dead letter under block": {func(h *History) {
			h.Block, h.MaxDead = true, 2
			takeAway(h, "x8")
			h.RetryTable[0].State, h.RetryTable[1].State = Open, Open
		}, "out of order: 5 (x3, x4, x6, x7, x9)"},
		"reported before the row was committed":         {func(h *History) { h.Marks[1].Snapshot.Running = []uint64{3} }, "reported before delivery: 1 (x3)"},
		"reported before the dead letter was committed": {func(h *History) { h.Marks[1].Snapshot.Max = 2 }, "reported before delivery: 3 (x3, x4, x2)"},
		"taken out before it was confirmed":             {func(h *History) { h.Marks[2].Snapshot.Max = 22 }, "reported before delivery: 1 (x4)"},
		"reported beyond what was neither, long past":   {func(h *History) { h.Marks[0].Flush = 1061 }, "reported before delivery: 5 (y5, x3, x4, x6, x2)"},
		"a mark that knows of no retry table":           {func(h *History) { h.Marks[1].Snapshot = nil }, "reported before delivery: 3 (x3, x4, x2)"},
	} {
		t.Run(name, func(t *testing.T) {
			h := retryRowHistory()
			fault.plant(&h)
			v := Check(h)
			if err := v.Err(); err == nil || !strings.Contains(err.Error(), fault.says) || !strings.Contains(v.String(), fault.says) {
				t.Errorf("verdict says %s\nwant %s", v, fault.says)
			}
		})
	}
}

func index(h *History, id string) int {
	return slices.IndexFunc(h.Deliveries, func(d Delivery) bool { return d.ID == id })
}

// takeAway has an event not arrive.
func takeAway(h *History, id string) {
	i := index(h, id)
	h.Deliveries = slices.Delete(h.Deliveries, i, i+1)
	shiftMarks(h, i, -1)
}

func again(h *History, id string, replay bool) {
	d := h.Deliveries[index(h, id)]
	d.Replay = replay
	h.Deliveries = append(h.Deliveries, d)
}

// late has an event arrive at the end.
func late(h *History, id string, n int64) {
	h.Deliveries = append(h.Deliveries, Delivery{ID: id, Aggregate: "order", Key: "a", Seq: n, Position: event.Position{Commit: pglogrepl.LSN(1000 + 10*n)}})
}

func swap(h *History, a, b string) {
	h.Marks = nil
	i, j := index(h, a), index(h, b)
	h.Deliveries[i], h.Deliveries[j] = h.Deliveries[j], h.Deliveries[i]
}

func TestSnapshot(t *testing.T) {
	const text = "10:20:12,15"
	s, err := ParseSnapshot(text)
	if err != nil || s.String() != text {
		t.Fatalf("%s is read as %v: %v", text, s, err)
	}
	for transaction, want := range map[uint64]bool{9: true, 10: true, 12: false, 13: true, 15: false, 19: true, 20: false, 21: false} {
		if s.Sees(transaction) != want {
			t.Errorf("transaction %d is seen: %t", transaction, !want)
		}
	}
	if s, err := ParseSnapshot("7:7:"); err != nil || s.String() != "7:7:" {
		t.Errorf("a quiet one is read as %v: %v", s, err)
	}
	for _, wrong := range []string{"", "1:2", "a:2:", "1:b:", "1:2:c"} {
		if _, err := ParseSnapshot(wrong); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}
