package kafka

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// heldInDoubt publishes events of which the first is poison: it is rejected, and the batch of those behind it is held in
// doubt.
func (d *desk) heldInDoubt(events []*outbox.Event) attempt {
	d.t.Helper()
	d.begin(events...)
	d.taken()
	d.answered(answer{kind: answered, code: 87, culprits: []int32{0}})
	first := d.taken()
	d.code(20)
	for last := len(events) - 1; d.outcomes[last].State != sink.Rejected; {
		d.waits()
		d.taken()
		goBy(5 * time.Second)
		d.lane.sink.lastConfirm.Store(time.Now().UnixNano())
		d.code(20)
	}
	d.end()
	return first
}

// A batch in doubt goes again as the same bytes also when an event that was rejected before it is offered again in front of
// it.
func TestPoisonBeforeDoubt(t *testing.T) {
	onDesk(t, func(d *desk) {
		events := few(3)
		first := d.heldInDoubt(events)
		d.begin(append(events, few(1)...)...)
		if again := d.taken(); !bytes.Equal(again.bytes, first.bytes) {
			t.Fatalf("sent %v again as %v", first, again)
		}
		d.code(0)
		rest := d.taken()
		if rest.producer != first.producer || rest.sequence != 2 || len(rest.ids) != 2 || rest.ids[0] != string(events[0].ID) {
			t.Errorf("then %v", rest)
		}
		d.answered(answer{kind: answered, code: 87, culprits: []int32{0}})
		d.taken()
		d.code(0)
		if d.outcomes[0].State != sink.Rejected {
			t.Errorf("the poison is %s", d.outcomes[0].State)
		}
		wantConfirmed(t, d.outcomes, 0)
	})
}

// That is not done over the order of a key.
func TestOrderBeforeDoubt(t *testing.T) {
	onDesk(t, func(d *desk) {
		events := few(4)
		first := d.heldInDoubt(events[1:])
		events[0].Key, events[0].Hash = events[2].Key, events[2].Hash // one that was never offered, say
		d.begin(events...)
		again := d.taken()
		if again.producer == first.producer || len(again.ids) != 4 || again.ids[0] != string(events[0].ID) {
			t.Errorf("first %v, then %v", first, again)
		}
	})
}

// Which events of a call make it begin with those in doubt, and how it goes on.
func TestResumes(t *testing.T) {
	for _, c := range []struct {
		call, doubt, want string // keys; want "": no
	}{
		{"abc", "ab", "abc"},
		{"xabc", "ab", "abxc"},
		{"xaybz", "ab", "abxyz"},
		{"xaxb", "ab", "abxx"},
		{"abab", "ab", "abab"},
		{"xa", "ab", ""},
		{"", "a", ""},
		{"ba", "ab", ""},
		{"xyz", "ab", ""},
	} {
		var events []*outbox.Event
		var todo []int32
		s := &stream{}
		for i, key := range c.call {
			ev := few(1)[0]
			ev.Hash = uint64(key)
			events, todo = append(events, ev), append(todo, int32(i))
			if len(s.of) < len(c.doubt) && rune(c.doubt[len(s.of)]) == key {
				s.of = append(s.of, whichIs(ev))
			}
		}
		for len(s.of) < len(c.doubt) {
			s.of = append(s.of, whichIs(few(1)[0]))
		}
		got := ""
		if s.resumes(events, todo) {
			for _, i := range todo {
				got += fmt.Sprintf("%c", rune(events[i].Hash))
			}
		}
		if got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.doubt, c.call, got, c.want)
		}
	}
	// a of another time is before the a in doubt
	events := few(3)
	events[0].Hash = events[2].Hash
	s := &stream{of: []which{whichIs(events[1]), whichIs(events[2])}}
	if s.resumes(events, []int32{0, 1, 2}) {
		t.Error("an event passes an earlier one of its key")
	}
}

// A letter that is replayed is another record than the one that is in doubt: it says so in a header.
func TestReplayIsNoRepeat(t *testing.T) {
	onDesk(t, func(d *desk) {
		ev := few(1)[0]
		d.begin(ev)
		first := d.taken()
		d.answered(answer{kind: lost, why: io.EOF})
		d.end()
		replayed := *ev
		replayed.Replay = true
		d.begin(&replayed)
		again := d.taken()
		if again.producer == first.producer || bytes.Equal(again.bytes, first.bytes) {
			t.Fatalf("%v goes as %v", first, again)
		}
		d.answered(answer{kind: lost, why: io.EOF})
		d.end()
		d.begin(&replayed)
		if same := d.taken(); !bytes.Equal(same.bytes, again.bytes) {
			t.Errorf("replayed again as %v, was %v", same, again)
		}
	})
}
