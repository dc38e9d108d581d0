package relay

import "time"

// Snapshot is the state of the line for status and metrics.
type Snapshot struct {
	Watermark Watermark
	Events    int   // in the line, not settled
	Bytes     int64 // of those
	Charged   int64 // memory held for their bytes

	OldestCommit time.Time // commit time of the oldest transaction with an unsettled event; zero when there is none

	Confirmed      uint64 // events settled since the start
	Rejected       uint64 // attempts that ended in a rejection since the start
	ConfirmedAbove uint64 // events confirmed above the watermark: what a crash now would repeat, beside what is not reported yet

	Held      []Held // rejected events that hold their lanes, the oldest 20
	HeldTotal int
}

// Snapshot is cheap enough to be asked for at each scrape; its parts are not of exactly one moment.
func (l *Line) Snapshot() Snapshot {
	var s Snapshot
	s.Events, s.Bytes, s.Charged = l.window.size()
	s.Rejected = l.board.rejected.Load()
	s.Held, s.HeldTotal = l.board.show()
	l.tracker.snapshot(&s)
	if s.Events == 0 {
		s.OldestCommit = time.Time{}
	}
	return s
}

func (t *tracker) snapshot(s *Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Watermark = t.mark
	s.Confirmed = t.confirmed
	s.ConfirmedAbove = t.confirmed - t.covered
	if t.head != nil {
		s.OldestCommit = t.head.time
	}
}
