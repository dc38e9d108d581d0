package retry

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// pulse is what one goroutine reports of itself.
type pulse struct {
	mu     sync.Mutex
	at     time.Time     // when it began what it is at; zero: it is at rest
	most   time.Duration // it was at anything
	rounds int
}

func (p *pulse) tell(atWork bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.at.IsZero() {
		p.most = max(p.most, now.Sub(p.at))
		p.rounds++
	}
	p.at = time.Time{}
	if atWork {
		p.at = now
	}
}

// busy is for how long it has been at something, and how long it was at the most.
func (p *pulse) busy() (now, most time.Duration, rounds int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() {
		now = time.Since(p.at)
	}
	return now, max(p.most, now), p.rounds
}

// watchPulses starts the fixture's retry table with the pulses of its goroutines.
func (f *fixture) watchPulses() map[string]*pulse {
	all := map[string]*pulse{"writer": {}, "feeder": {}, "stats": {}}
	h := &f.table.cfg.Hooks
	h.Writer, h.Feeder, h.Stats = all["writer"].tell, all["feeder"].tell, all["stats"].tell
	f.start()
	return all
}

// A database that does not answer for hours, or answers only with errors, has each goroutine come
// round all the same, within what a few of the store's timeouts take.
func TestSilentDatabaseIsNotStuck(t *testing.T) {
	var silent sync.Map // "": its statements end by their timeouts
	wait := func() error {
		if _, is := silent.Load(""); !is {
			return nil
		}
		time.Sleep(20 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		return context.DeadlineExceeded
	}
	count := func(context.Context, int) (store.Stats, error) { return store.Stats{At: time.Now()}, wait() }
	inBubble(t, Config{Stats: count}, func(f *fixture) {
		pulses := f.watchPulses()
		f.deferRows(itsRoute, "1 k x/a", "2 j x/a")
		f.gets("k@x", "1")
		f.store.set(func() { f.store.fault = func(string) (error, bool) { return wait(), false } })
		silent.Store("", true)
		f.deferRows(transient, "3 m x/b")
		f.line.finish("delivered", "1")
		f.read("j@x")
		f.walk("x")
		f.pass(3 * time.Hour)
		for name, p := range pulses {
			if now, most, rounds := p.busy(); most > 2*time.Minute || rounds < 100 {
				t.Errorf("the %s was at one thing for %s, now for %s, in %d rounds", name, most, now, rounds)
			}
		}
		silent.Delete("")
		f.pass(time.Hour)
		for name, p := range pulses {
			if now, _, _ := p.busy(); now > time.Minute {
				t.Errorf("the %s does not rest: it is at something for %s", name, now)
			}
		}
		f.equal("rows", f.rows(), "2 3")
	})
}

// A statement that does not end although its time is over is seen, and nothing else is.
func TestStatementWithoutEndIsStuck(t *testing.T) {
	for _, c := range []struct{ call, stuck string }{{"defer 2", "writer"}, {"read", "feeder"}, {"apply", "feeder"}, {"requests", "feeder"}, {"count", "stats"}} {
		end := make(chan struct{})
		hang := func(call string) {
			if strings.HasPrefix(call, c.call) {
				<-end
			}
		}
		count := func(context.Context, int) (store.Stats, error) {
			hang("count")
			return store.Stats{At: time.Now()}, nil
		}
		inBubble(t, Config{Stats: count}, func(f *fixture) {
			end = make(chan struct{}) // of the bubble
			pulses := f.watchPulses()
			f.deferRows(transient, "1 k x/a")
			f.gets("k@x", "1")
			f.store.set(func() { f.store.fault = func(call string) (error, bool) { hang(call); return nil, false } })
			f.deferRows(transient, "2 k x/a")
			f.line.finish("delivered", "1")
			f.read("k@x")
			f.pass(time.Hour)
			for name, p := range pulses {
				if now, _, _ := p.busy(); (now > 5*time.Minute) != (name == c.stuck) {
					t.Errorf("%s hangs: the %s is at something for %s", c.call, name, now)
				}
			}
			close(end)
			f.pass(time.Minute)
			for name, p := range pulses {
				if now, _, _ := p.busy(); now > time.Minute {
					t.Errorf("%s has ended: the %s is at something for %s", c.call, name, now)
				}
			}
		})
	}
}

// One that has ended is not at work: the next term has others.
func TestEndedIsAtRest(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		pulses := f.watchPulses()
		f.store.fails("", errLost, false)
		f.deferRows(transient, "1 k x/a")
		f.read("k@x")
		f.pass(time.Minute)
		f.stop()
		for name, p := range pulses {
			if now, _, _ := p.busy(); now != 0 {
				t.Errorf("the %s is at something for %s", name, now)
			}
		}
	})
}

// Slow reads of many parts are not stuck.
func TestReadInPartsIsNotStuck(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		pulses := f.watchPulses()
		var specs []string
		for i := range 64 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRows(nil, specs...)
		f.settle()
		f.store.set(func() {
			f.store.torn = map[string]bool{"033": true}
			f.store.fault = func(call string) (error, bool) {
				if call == "read" {
					time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time, not ours
				}
				return nil, false
			}
		})
		for i := range 64 {
			f.read(fmt.Sprintf("k%d@x", i))
		}
		f.pass(time.Hour)
		if _, most, _ := pulses["feeder"].busy(); most > 2*time.Minute || f.line.has() != 63 {
			t.Errorf("the feeder was at one thing for %s, the lanes have %d rows", most, f.line.has())
		}
		f.store.accept()
		f.pass(time.Minute)
	})
}
