package relay

import "time"

// Snapshot is the state of the line for status and metrics.
type Snapshot struct {
	Events  int   // in the line, not settled
	Bytes   int64 // of those
	Waiting int   // events read and outside the line, 0 or 1: the one whose lane is not known, or that waits for room

	OldestCommit time.Time // commit time of the oldest transaction with an unsettled event, the waiting one among them; zero when there is none

	ConfirmedAbove uint64 // events confirmed above the watermark: what a crash now would repeat, beside what is not reported yet

	Paused     []Gate // destinations that are paused, the longest first
	HeldChains int    // chains that rows of the siding hold, those counted with their unit not among them
}

// Snapshot is cheap enough to be asked for at each scrape; its parts are not of exactly one moment.
func (l *Line) Snapshot() Snapshot {
	var s Snapshot
	s.Events, s.Bytes, _ = l.window.size()
	s.Paused = l.gates.list()
	s.HeldChains = int(l.room.taken.Load())
	l.tracker.snapshot(&s)
	if s.Events == 0 {
		s.OldestCommit = time.Time{}
	}
	if at := l.waiting.Load(); at != 0 {
		s.Waiting = 1
		if s.OldestCommit.IsZero() { // else an event inside is of the same transaction or of an earlier one
			s.OldestCommit = time.Unix(0, at).UTC()
		}
	}
	return s
}

func (t *tracker) snapshot(s *Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.ConfirmedAbove = t.confirmed - t.covered
	if t.head != nil {
		s.OldestCommit = t.head.time
	}
}
