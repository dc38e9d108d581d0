package kafka

import "testing"

// The offset to commit never passes a message that was not handled, in whatever order they are.
func TestPartition(t *testing.T) {
	p := &partition{next: 10, stored: 10}
	commits := func(after string, want int64) {
		t.Helper()
		if to, changed := p.uncommitted(); to != want || changed != (want != p.stored) {
			t.Errorf("after %s: %d is to be committed (changed: %v), want %d", after, to, changed, want)
		}
	}
	commits("nothing", 10)
	for offset := int64(10); offset < 14; offset++ {
		p.take(offset)
	}
	p.skip(20) // 14 to 19 were compacted away
	p.handled(12)
	p.handled(11)
	commits("those in the middle", 10)
	p.handled(10)
	commits("the first three", 13)
	p.committed(13)
	commits("the commit", 13)
	if from := p.start(); from != 13 {
		t.Errorf("a new session reads from %d, want 13", from)
	}
	p.handled(13) // of the session before
	commits("a new session", 13)
	p.take(13)
	p.handled(13)
	p.skip(20)
	commits("all", 20)
	p.forget()
	if to, changed := p.uncommitted(); changed {
		t.Errorf("%d is to be committed for a topic that is gone", to)
	}
}
