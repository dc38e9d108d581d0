package retry

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// A row that the database refuses keeps the later ones of its ordering group out of the table, and
// no others.
func TestRefusedRowIsIsolated(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named=", named), func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.store.bad["3"], f.store.named = true, named
				f.start()
				f.deferRows(nil, "1 k x/a", "2 j x/a", "3 k x/a", "4 j x/a", "5 k x/a", "6 i x/a")
				f.settle()
				f.equal("rows", f.rows(), "1 2 4 6")
				f.saidInAnyOrder("committed 1", "committed 2", "committed 4", "committed 6")
				f.deferRows(nil, "7 k x/a", "8 j x/a")
				f.settle()
				f.equal("rows", f.rows(), "1 2 4 6 8")
				shot := f.table.Snapshot()
				if shot.RefusedAll != 1 || shot.Queued != 3 || shot.Refused[0].ID != "3" || shot.Refused[0].Behind != 2 || shot.Refused[0].Err != "invalid byte" {
					t.Errorf("snapshot %+v", shot)
				}
				f.pass(time.Minute) // tried again and again, and not for ever longer
				tried := f.store.count("defer 3")
				f.store.set(func() { delete(f.store.bad, "3") })
				f.store.done("")
				f.pass(time.Minute)
				f.equal("rows", f.rows(), "1 2 3 4 5 6 7 8")
				f.equal("statements", f.store.done("defer"), "defer 3, defer 5 7")
				if tried < 5 || tried > 20 {
					t.Errorf("tried %d times in a minute", tried)
				}
				if shot := f.table.Snapshot(); shot.Queued != 0 || shot.RefusedAll != 0 {
					t.Errorf("snapshot %+v", shot)
				}
			})
		})
	}
}

// What was behind a refused row comes before all that came later.
func TestFreedRowsComeBeforeLaterOnes(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.store.bad["1"] = true
		f.start()
		f.deferRows(nil, "1 k x/a", "2 k x/a")
		f.settle()
		// Two rounds are waiting, with a later row in the second, when the first one is written.
		f.store.set(func() { delete(f.store.bad, "1") })
		f.store.fails("defer one", errLost, false)
		f.deferRows(nil, "one j x/a")
		var specs []string
		for i := range roundRows + 100 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRows(nil, append(specs, "3 k x/a")...)
		f.pass(time.Second) // 1 is due
		f.store.accept()
		f.pass(10 * time.Second)
		all := " " + strings.ReplaceAll(f.store.done("defer"), ",", "") + " "
		if i, j := strings.LastIndex(all, " 2 "), strings.Index(all, " 3 "); i < 0 || i > j {
			t.Errorf("2 was written at %d, 3 at %d", i, j)
		}
	})
}

// A refused row gets a number above acked at each try: one below would be read while it is not seen
// to be committed.
func TestRefusedRowGetsNewNumbers(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.store.bad["1"] = true
		f.start()
		f.deferRows(nil, "1 k x/a", "2 j x/a")
		f.settle()
		f.store.set(func() { delete(f.store.bad, "1") })
		f.store.fails("defer 1", errLost, true) // written, and not seen to be
		f.pass(3 * time.Second)
		f.equal("rows", f.rows(), "1 2")
		f.gets("k@x", "more")
		f.store.accept()
		f.pass(10 * time.Second)
		f.gets("k@x", "1")
	})
}

// When the statement itself is refused, rows are not kept back one by one.
func TestRefusedStatementIsNotTheRows(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.fails("defer", &store.Refused{Err: errors.New("no such column")}, false)
		var specs []string
		for i := range 200 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRows(nil, specs...)
		f.settle()
		if n := f.table.Snapshot().RefusedAll; n != refusalLimit {
			t.Errorf("%d rows are held back", n)
		}
		f.store.accept()
		f.pass(2 * time.Minute)
		if n := len(strings.Fields(f.rows())); n != 200 {
			t.Errorf("%d rows", n)
		}
	})
}
