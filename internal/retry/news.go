package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay"
)

// takeBack takes rows back from a lane. It does not block.
func (f *feeder) takeBack(rows []*relay.Fed) {
	f.mu.Lock()
	f.returned = append(f.returned, rows...)
	f.mu.Unlock()
	signal(f.woken)
}

// hear takes news of rows that were committed. It does not block.
func (f *feeder) hear(of []news) {
	f.mu.Lock()
	if len(f.news)+len(of) > readyLimit {
		f.missed = true
	} else {
		f.news = append(f.news, of...)
	}
	f.mu.Unlock()
	signal(f.woken)
}

// stuck hears that the writer cannot write the next row of a chain.
func (f *feeder) stuck(chain uint64) {
	f.mu.Lock()
	f.refused = append(f.refused, chain)
	f.mu.Unlock()
	signal(f.woken)
}

// stop ends the offering.
func (f *feeder) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	signal(f.woken)
}

// collect takes in what others have left.
func (f *feeder) collect() {
	select {
	case <-f.s.line.GatesChanged():
		f.gatesChanged = true
	default:
	}
	f.mu.Lock()
	returned, all, missed, refused := f.returned, f.news, f.missed, f.refused
	f.returned, f.news, f.missed, f.refused = nil, nil, false, nil
	f.mu.Unlock()
	for _, fed := range returned {
		f.back(fed)
	}
	for _, n := range all {
		f.learn(n)
	}
	for _, chain := range refused {
		f.readyIfOwed(chain)
	}
	if missed {
		f.dueAt = time.Now()
		f.sweep(gate{})
		for chain := range f.owed {
			f.ready1(chain, false)
		}
	}
	now, rest := time.Now(), f.later[:0]
	for _, l := range f.later {
		if l.at.After(now) {
			rest = append(rest, l)
		} else {
			f.ready1(l.chain, false)
		}
	}
	f.later = rest
}

// learn takes in that a row was committed.
func (f *feeder) learn(n news) {
	switch r := f.runs[n.chain]; {
	case n.dead:
		f.readyIfOwed(n.chain) // it may be what the lane waits for, and holds its chain
	case r != nil:
		r.again = true
	case !n.due.IsZero():
		if n.due.Before(f.dueAt) {
			f.dueAt = n.due
		}
		f.readyIfOwed(n.chain)
	case f.shut(n.place, n.chain):
		f.accuse(n.place, n.fault)
		f.readyIfOwed(n.chain)
	default:
		f.ready1(n.chain, false)
	}
}

// ready1 readies a chain.
func (f *feeder) ready1(chain uint64, due bool) {
	if r := f.runs[chain]; r != nil {
		r.again = true
	} else if !f.ready.add(chain, due) {
		f.notNow(chain)
		f.sweep(gate{})
	}
}

func (f *feeder) readyIfOwed(chain uint64) {
	if _, owed := f.owed[chain]; owed {
		f.ready1(chain, false)
	}
}

// notNow tells the lane, if that is owed, that nothing of the chain may go now.
func (f *feeder) notNow(chain uint64) {
	if o, owed := f.owed[chain]; owed {
		delete(f.owed, chain)
		f.s.line.NotNow(o.lane, chain, o.unit)
	}
}

// afterwards looks at a chain again after a while.
func (f *feeder) afterwards(chain uint64, d time.Duration) {
	f.later = append(f.later, later{time.Now().Add(d), chain})
}
