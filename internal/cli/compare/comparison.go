// One comparison: the loop that pairs the messages of two sides.

package compare

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
)

// side reads the topics or exchanges of one relay.
type side interface {
	// read hands over messages until ctx ends, or fails. It closes caughtUp when everything was
	// handed over that was there when it was opened.
	read(ctx context.Context, messages chan<- compare.Message, caughtUp chan<- struct{}) error
	// partitions is how many each topic has; nil: none has any.
	partitions() []int
	close()
}

// comparison is one run of compare debezium: it hands the messages of two sides to the matcher,
// pauses a side that is far ahead, and decides when it ends. Except for the reading it belongs to
// one goroutine.
type comparison struct {
	f       *compareFlags
	out     io.Writer
	line    output.Progress
	matcher *compare.Matcher
	shown   []compare.Difference // differences that are printed
	notes   []string             // further lines of the summary

	countFrom   time.Time    // from when on a message without a counterpart counts
	from        time.Time    // of --from TIME
	lastMessage [2]time.Time // when a side has handed over a message last
	lastPair    time.Time    // when a pair was found last
	caughtUp    int          // sides that have read what was there at the start
	ended       bool
	announced   bool // it was printed that everything counts
}

// compare reads both sides until the requested end. Its error is why it was cut short.
func (r *comparison) compare(ctx context.Context, sides [2]side) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	group, reading := errgroup.WithContext(reading)
	var messages [2]chan compare.Message
	var caughtUp [2]chan struct{}
	for i, s := range sides {
		messages[i], caughtUp[i] = make(chan compare.Message), make(chan struct{})
		group.Go(func() error {
			if err := s.read(reading, messages[i], caughtUp[i]); err != nil {
				return fmt.Errorf("read %s: %w", compare.Side(i), err)
			}
			return nil
		})
	}
	group.Go(func() error {
		defer cancel()
		r.pair(reading, messages, caughtUp)
		return nil
	})
	return group.Wait()
}

// pair is the loop.
func (r *comparison) pair(ctx context.Context, messages [2]chan compare.Message, caughtUp [2]chan struct{}) {
	r.begin()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		in := messages
		for side := range in {
			if r.full(compare.Side(side)) {
				in[side] = nil
			}
		}
		select {
		case m := <-in[compare.Theirs]:
			r.take(compare.Theirs, m)
		case m := <-in[compare.Ours]:
			r.take(compare.Ours, m)
		case <-caughtUp[compare.Theirs]:
			caughtUp[compare.Theirs] = nil
			r.caughtUp++
		case <-caughtUp[compare.Ours]:
			caughtUp[compare.Ours] = nil
			r.caughtUp++
		case <-tick.C:
			r.dropOldest(time.Now())
			r.announceCounting(time.Now())
			r.progress()
		case <-ctx.Done():
			return
		}
		if r.isOver(time.Now()) {
			return
		}
	}
}

// begin is called when both sides are open.
func (r *comparison) begin() {
	now := time.Now()
	r.countFrom, r.lastPair, r.lastMessage = now, now, [2]time.Time{now, now}
	r.from, _ = r.f.start() //nolint:errcheck // validate has read it
	if r.f.from == "now" {
		r.countFrom = now.Add(r.f.lag)
	}
	r.note("both sides are open" + output.If(r.f.from == "now", "; what comes in the first "+r.f.lag.String()+" without a counterpart is not counted"))
}

func (r *comparison) take(side compare.Side, m compare.Message) {
	now := time.Now()
	r.lastMessage[side] = now
	m.Early = now.Before(r.countFrom) || !r.from.IsZero() && m.Time < r.from.Add(r.f.lag).UnixMilli()
	before := r.matcher.Compared
	r.matcher.Add(side, m)
	if r.matcher.Compared > before {
		r.lastPair = now
	}
}

// announceCounting reports when everything counts.
func (r *comparison) announceCounting(now time.Time) {
	if !r.announced && !now.Before(r.countFrom) {
		r.announced = true
		r.note("everything counts from here on")
	}
}

// isOver reports whether the comparison is complete: the requested end has come, and after it all
// missing counterparts have come, or none came for as long as one side may be behind.
func (r *comparison) isOver(now time.Time) bool {
	if !r.ended {
		f := r.f
		counted := f.count > 0 && r.matcher.Compared >= f.count
		timed := f.period > 0 && !now.Before(r.countFrom.Add(f.period))
		read := f.count == 0 && f.period == 0 && r.caughtUp == len(r.lastMessage)
		if !counted && !timed && !read {
			return false
		}
		r.ended, r.lastPair = true, now
		r.matcher.End()
	}
	theirs, _ := r.matcher.Waiting(compare.Theirs)
	ours, _ := r.matcher.Waiting(compare.Ours)
	return theirs+ours == 0 || now.Sub(r.lastPair) >= r.f.lag
}

func (r *comparison) limitBytes() int64 { return int64(r.f.memory) << 20 }

// full reports whether a side has to wait until the other one has caught up.
func (r *comparison) full(side compare.Side) bool {
	_, bytes := r.matcher.Waiting(side)
	return bytes >= r.limitBytes()
}

// dropOldest gives up the oldest messages of a full side when waiting does not help: the other one
// is full, too, or silent.
func (r *comparison) dropOldest(now time.Time) {
	full := [2]bool{r.full(compare.Theirs), r.full(compare.Ours)}
	for side := range full {
		silent := now.Sub(r.lastMessage[1-side]) >= r.f.lag
		if !full[side] || !full[1-side] && !silent {
			continue
		}
		for {
			if _, bytes := r.matcher.Waiting(compare.Side(side)); bytes < r.limitBytes()/4*3 {
				break
			}
			r.matcher.GiveUp(compare.Side(side))
		}
	}
}
