package retry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// A row that cannot be read blocks its own ordering group, and neither other rows nor the probe of
// its destination.
func TestRowThatCannotBeRead(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.store.set(func() { f.store.torn = map[string]bool{"000": true, "333": true} })
		var specs []string
		for i := range 700 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRow(nil, append(specs, "behind k333 x/a")...)
		f.settle()
		f.line.fix("x")
		f.pass(20 * time.Second)
		f.equal("table", f.table(), "000 333 behind")
		if n := f.store.count("runs"); n > 100 {
			t.Errorf("%d reads", n)
		}
		f.store.set(func() { f.store.torn = nil })
		f.pass(unreadPause)
		f.equal("table", f.table(), "")
		inOrder(t, f.line.sentIDs(), "333 behind")
	})
}

// One that is too old keeps no others from the dead letters.
func TestRowThatCannotBeReadAndAged(t *testing.T) {
	inBubble(t, Config{DestinationMaxAge: 10 * time.Minute}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.store.set(func() { f.store.torn = map[string]bool{"1": true} })
		f.deferRow(itsRoute, "0 j x/a", "1 k x/a", "2 i x/a")
		f.pass(12 * time.Minute)
		f.equal("dead_letters", f.deadLetters(), "0:open 2:open")
		f.equal("table", f.table(), "1")
	})
}

// A lane that waits for a row that cannot be read is notified that nothing may go.
func TestNotNowOfARowThatCannotBeRead(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a")
		f.settle()
		f.line.set(func() { f.line.keep = true })
		f.line.fix("x/a")
		f.line.set(func() { clear(f.line.paused) })
		signal(f.line.changed)
		f.settle() // 1 is with the lane
		f.store.set(func() { f.store.torn = map[string]bool{"2": true} })
		f.deferRow(nil, "2 k x/a")
		f.settle()
		f.line.said()
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.settle()
		f.equal("told", f.heard(), "sent 1 not now k@x")
	})
}

// A dead letter that cannot be read is not replayed, and keeps no request waiting.
func TestReplayOfADeadLetterThatCannotBeRead(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRow(permanent, "1 k x/a")
		f.deferRow(permanent, "2 j x/a")
		f.deferRow(permanent, "3 i x/a")
		f.settle()
		f.store.set(func() { f.store.torn = map[string]bool{"2": true} })
		one, two, three := f.Ask(store.Replay, "1"), f.Ask(store.Replay, "2"), f.Ask(store.Discard, "3")
		f.pass(5 * time.Second)
		f.equal("asked", f.Asked(one)+", "+f.Asked(two)+", "+f.Asked(three), "done, failed, done")
		f.equal("dead_letters", f.deadLetters(), "1:replayed 2:open 3:discarded")
		if q, _ := f.db.RequestByID(two); !strings.Contains(q.Result, "cannot be read") {
			t.Errorf("the operator reads %q", q.Result)
		}
	})
}
