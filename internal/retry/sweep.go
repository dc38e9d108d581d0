// Going through the table for ordering groups that nothing else brings up.

package retry

import (
	"context"
	"time"
)

// sweepOn reads the next page of a sweep, of each in turn, when there is room for what it finds.
// Pages after which nothing could be fed cost a tenth of the time at the most.
func (f *feeder) sweepOn(ctx context.Context) (bool, error) {
	now := time.Now()
	if len(f.sweeps) == 0 || f.swept || len(f.ready.order) >= sweepBelow || now.Before(f.sweepAt) {
		return false, nil
	}
	if f.offered == f.sweepBefore && f.sweepCost > 0 {
		f.sweepAt = now.Add(9 * f.sweepCost)
		f.sweepCost = 0
		return false, nil
	}
	f.sweepBefore, f.sweepCost = f.offered, 0
	s := f.sweeps[0]
	f.sweeps = append(f.sweeps[1:], s)
	if s.ended {
		if f.taken < s.until && len(f.ready.order) > 0 { // what it found is looked at first
			f.swept = true
			return false, nil
		}
		f.sweeps = f.sweeps[:len(f.sweeps)-1]
		f.complete(s)
		return true, nil
	}
	if !s.begun {
		s.owes = f.owedIn(s.of)
	}
	groups, err := f.next(ctx, &s.walk)
	f.sweepCost += time.Since(now)
	if err != nil {
		return false, err
	}
	f.swept = len(groups) > 0
	for _, group := range groups {
		f.makeReady(group, false)
	}
	if s.ended {
		s.until = f.taken + len(f.ready.order)
	}
	return true, nil
}

// owedIn are the exchanges or topics counted as a whole in a lane that are owed a word, of those
// that a sweep will see.
func (f *feeder) owedIn(g pausedDest) []owing {
	var owes []owing
	for o := range f.owedExchangesOrTopics {
		if g.exchangeOrTopic == 0 || g.exchangeOrTopic == o.exchangeOrTopic && g.dest == 0 {
			owes = append(owes, o)
		}
	}
	return owes
}

// complete is the end of a sweep. Of an exchange or topic that is counted as a whole, and owed a
// word since before the sweep, nothing may go now if nothing of it is in flight: whatever may go
// was found.
func (f *feeder) complete(s *sweep) {
	for _, o := range s.owes {
		group, owed := f.owedExchangesOrTopics[o]
		if !owed {
			continue
		}
		delete(f.owedExchangesOrTopics, o)
		if !f.exchangeOrTopicInFlight(o) {
			f.s.line.NotNow(o.lane, group, o.exchangeOrTopic)
		}
	}
	if s.again {
		f.sweep(s.of)
	}
}

// exchangeOrTopicInFlight reports whether rows of the exchange or topic are in that lane: their end
// will bring up the word that is owed again. Those in no order are not counted, so their end says
// nothing.
func (f *feeder) exchangeOrTopicInFlight(o owing) bool {
	for _, r := range f.runs {
		if r.ordered && r.lane == o.lane && r.exchangeOrTopic == o.exchangeOrTopic {
			return true
		}
	}
	return false
}
