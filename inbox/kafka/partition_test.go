package kafka

import (
	"context"
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

// The offset to commit is the lowest that was not handled, over gaps in the log, and a session
// begins there.
func TestPartition(t *testing.T) {
	p := &partition{next: 5, stored: -1}
	committed := func(want int64) {
		t.Helper()
		to, changed := p.uncommitted()
		if to != want || changed != (want != p.stored) {
			t.Errorf("the offset to commit is %d (%v), want %d", to, changed, want)
		}
		p.committed(to)
	}
	committed(5) // of a group that had none
	committed(5)
	for _, offset := range []int64{5, 6, 9, 10} { // 7 and 8 were compacted away
		p.take(offset)
	}
	committed(5)
	p.handled(6)
	p.handled(9)
	committed(5)
	p.handled(5)
	committed(10)
	p.handled(10)
	p.skip(12) // the end of a transaction
	committed(12)
	p.take(12)
	p.take(13)
	p.handled(13)
	if from := p.start(); from != 12 {
		t.Errorf("another session begins with %d, want 12", from)
	}
	p.take(12)
	p.handled(12)
	committed(13)
	if _, ok := p.untrimmed(); ok {
		t.Error("messages of a topic of others are deleted")
	}
	p.own = true
	if to, ok := p.untrimmed(); to != 13 || !ok {
		t.Errorf("messages before %d are deleted (%v), want those before 13", to, ok)
	}
	p.trimTo(13)
	if _, ok := p.untrimmed(); ok {
		t.Error("messages are deleted again")
	}
	p.take(13)
	p.handled(13)
	p.committed(14)
	p.take(14)
	p.handled(14)
	p.forget()
	if to, ok := p.untrimmed(); ok {
		t.Errorf("messages before %d are deleted from the topic that has followed", to)
	}
	if to, ok := p.uncommitted(); ok {
		t.Errorf("offset %d of a topic that was deleted is committed", to)
	}
}

// So many messages are taken after one that is not handled, and no more until it is.
func TestRoom(t *testing.T) {
	p := &partition{freed: make(chan struct{}, 1)}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for offset := range int64(3) {
		if !p.room(ended, 3) {
			t.Fatalf("there is no room for message %d", offset)
		}
		p.take(offset)
	}
	p.handled(2)
	if p.room(ended, 3) {
		t.Error("there is room, and the first message is not handled")
	}
	go p.handled(0)
	if !p.room(t.Context(), 3) {
		t.Error("there is no room after the first message was handled")
	}
}

// A process that is about to read what the broker has no more was overtaken if the group is behind
// it: another has processed the messages. Else they are lost.
func TestOvertaken(t *testing.T) {
	c := &Consumer{group: "mailer"}
	for from, overtaken := range map[int64]bool{0: true, 1: false} {
		err := c.gone(&partition{topic: "orders"}, from, kafkalink.Ends{First: 2, After: 3}, 1)
		var lost *LostError
		if errors.Is(err, errOvertaken) != overtaken || errors.As(err, &lost) == overtaken {
			t.Errorf("about to read %d while the group is at 1: %v", from, err)
		}
	}
}
