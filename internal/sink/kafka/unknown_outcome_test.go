package kafka

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// leftInDoubt publishes events of which the first is poison: it is rejected, and the batch of those
// behind it is in doubt.
func (d *partRig) leftInDoubt(events []*event.Event) attempt {
	d.t.Helper()
	d.begin(events...)
	d.taken()
	d.answered(client.Answer{Kind: client.Answered, Code: 87, Culprits: []int32{0}})
	first := d.taken()
	d.code(20)
	for last := len(events) - 1; d.outcomes[last].State != sink.Rejected; {
		d.waits()
		d.taken()
		goBy(5 * time.Second)
		d.lane.sink.client.LastConfirm.Store(time.Now().UnixNano())
		d.code(20)
	}
	d.end()
	return first
}

// A batch in doubt goes again as the same bytes also when an event that was rejected before it is
// offered again in front of it.
func TestPoisonBeforeDoubt(t *testing.T) {
	withPart(t, func(d *partRig) {
		events := few(3)
		first := d.leftInDoubt(events)
		d.begin(append(events, few(1)...)...)
		if again := d.taken(); !bytes.Equal(again.bytes, first.bytes) {
			t.Fatalf("sent %v again as %v", first, again)
		}
		d.code(0)
		rest := d.taken()
		if rest.producer != first.producer || rest.sequence != 2 || len(rest.ids) != 2 || rest.ids[0] != string(events[0].ID) {
			t.Errorf("then %v", rest)
		}
		d.answered(client.Answer{Kind: client.Answered, Code: 87, Culprits: []int32{0}})
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
	withPart(t, func(d *partRig) {
		events := few(4)
		first := d.leftInDoubt(events[1:])
		// one that was never offered, say
		events[0].Key, events[0].Hash = events[2].Key, events[2].Hash
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
		var events []*event.Event
		var todo []int32
		s := &producer{}
		for i, key := range c.call {
			ev := few(1)[0]
			ev.Hash = uint64(key)
			events, todo = append(events, ev), append(todo, int32(i))
			if len(s.of) < len(c.doubt) && rune(c.doubt[len(s.of)]) == key {
				s.of = append(s.of, identityOf(ev))
			}
		}
		for len(s.of) < len(c.doubt) {
			s.of = append(s.of, identityOf(few(1)[0]))
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
	s := &producer{of: []eventIdentity{identityOf(events[1]), identityOf(events[2])}}
	if s.resumes(events, []int32{0, 1, 2}) {
		t.Error("an event passes an earlier one of its key")
	}
}

// A dead letter that is replayed is another record than the one that is in doubt: it says so in a
// header.
func TestReplayIsNoRepeat(t *testing.T) {
	withPart(t, func(d *partRig) {
		ev := few(1)[0]
		d.begin(ev)
		first := d.taken()
		d.answered(client.Answer{Kind: client.Lost, Why: io.EOF})
		d.end()
		replayed := *ev
		replayed.Replay = true
		d.begin(&replayed)
		again := d.taken()
		if again.producer == first.producer || bytes.Equal(again.bytes, first.bytes) {
			t.Fatalf("%v goes as %v", first, again)
		}
		d.answered(client.Answer{Kind: client.Lost, Why: io.EOF})
		d.end()
		d.begin(&replayed)
		if same := d.taken(); !bytes.Equal(same.bytes, again.bytes) {
			t.Errorf("replayed again as %v, was %v", same, again)
		}
	})
}

// A call ends with a batch on its way, and the broker stores it afterwards. The database goes back
// to an earlier state, and another event has the position. It is not taken for the one before, and
// it is stored; that one is still known.
func TestAnotherEventAtThePosition(t *testing.T) {
	for name, otherwise := range map[string]bool{"another event": true, "the same event": false} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
				wantConfirmed(t, r.send(few(1)...))
				m.turn(1, false, true, time.Hour)
				first, second := few(1)[0], few(1)[0]
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if outcomes, err := r.try(ctx, first); err == nil || outcomes[0].State != sink.Unknown {
					t.Fatalf("%s, %v", outcomes[0].State, err)
				}
				m.turn(1, false, false, 0)
				synctest.Wait()
				want := []string{string(first.ID)}
				if otherwise {
					second.Position, second.Key, second.Hash = first.Position, first.Key, first.Hash
					want = append(want, string(second.ID))
				} else {
					second = first
				}
				wantConfirmed(t, r.send(second))
				m.mu.Lock()
				defer m.mu.Unlock()
				var stored []string
				for _, record := range m.appends[1:] {
					stored = append(stored, record.id)
				}
				if !slices.Equal(stored, want) {
					t.Errorf("stored %q, want %q", stored, want)
				}
			})
		})
	}
}

// Nor are the bytes that may be stored sent again in the place of another event's.
func TestAnotherEventInDoubt(t *testing.T) {
	withPart(t, func(d *partRig) {
		ev := few(1)[0]
		d.begin(ev)
		first := d.taken()
		d.answered(client.Answer{Kind: client.Lost, Why: io.EOF})
		d.end()
		other := *ev
		other.Payload = []byte(`{"of": "another life of the database"}`)
		d.begin(&other)
		if again := d.taken(); again.producer == first.producer || bytes.Equal(again.bytes, first.bytes) {
			t.Errorf("%v goes as %v", first, again)
		}
	})
}

// Every part of a record distinguishes two events of a position. Where an event has been meanwhile
// does not: as a deferred row it has a route, and times to the microsecond.
func TestWhich(t *testing.T) {
	unmade := map[string]bool{"Route": true, "Ordered": true, "Hash": true, "Fault": true, "Raw": true}
	now := time.Now()
	ev := &event.Event{CommitTime: now, Time: now, Payload: []byte{}, Columns: [][]byte{nil}}
	w, fields := identityOf(ev), reflect.TypeFor[event.Event]()
	for field := range fields.Fields() {
		if unmade[field.Name] {
			continue
		}
		other := *ev
		switch at := reflect.ValueOf(&other).Elem().FieldByIndex(field.Index).Addr().Interface().(type) {
		case *event.Position:
			at.Index++
		case *time.Time:
			*at = at.Add(time.Microsecond)
		case *event.PayloadKind:
			*at++
		case *[]byte:
			if *at == nil {
				*at = []byte{}
			} else {
				*at = nil
			}
		case *[][]byte:
			*at = [][]byte{{}}
		case *bool:
			*at = true
		default:
			t.Fatalf("%s: is a record made of it?", field.Name)
		}
		if w.is(&other) {
			t.Errorf("%s makes no difference", field.Name)
		}
	}
	deferred := *ev
	deferred.Route, deferred.CommitTime, deferred.Time = &event.Route{}, now.UTC().Truncate(time.Microsecond), now.UTC().Truncate(time.Microsecond)
	if !w.is(&deferred) {
		t.Error("a deferred row is another event")
	}
	moved := *ev
	if ev.ID, moved.Key = []byte("a"), []byte("a"); identityOf(ev) == identityOf(&moved) {
		t.Error("two columns are one text")
	}
}
