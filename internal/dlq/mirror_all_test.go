//go:build testall

package dlq

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A dead letter may be dead because of what it is: its copy carries nothing that was too long, and
// says so where there is room.
func TestMirrorOfUnsendableEvents(t *testing.T) {
	r := setup(t)
	long := strings.Repeat("ж", 128<<10)
	r.put(sample{id: long, key: long, aggregate: long, kind: long, name: long, raw: []byte(`{"id": null}`)})
	b := &broker{}
	_, err := r.mirror(b).once(r.ctx, time.Now())
	r.must(err)
	ev := b.got[0]
	if string(ev.ID) != ev.Position.String() || ev.Key != nil || ev.Aggregate != nil || ev.Type != nil || len(ev.Headers) > 8<<10 || string(ev.Payload) != `{"id": null}` {
		t.Errorf("the message is %.300q", fmt.Sprintf("%+v", ev))
	}
	var headers map[string]any
	r.must(json.Unmarshal(ev.Headers, &headers))
	if key := headers["event_key"].(string); !strings.HasPrefix(long, strings.TrimSuffix(key, "…")) || key == "…" {
		t.Errorf("the key is %q", key)
	}
}

// Large dead letters are read a few at a time, and one that is larger than that alone.
func TestMirrorIsBoundedByBytes(t *testing.T) {
	r := setup(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		r.put(sample{id: id})
	}
	r.exec(`UPDATE cdc_relay.dead_letter SET bytes = CASE n WHEN 1 THEN 5000000 ELSE 2500000 END`)
	b := &broker{}
	m := r.mirror(b)
	for _, want := range []string{"a", "b c", "d", ""} {
		_, err := m.once(r.ctx, time.Now())
		r.must(err)
		if got := b.ids(); got != want {
			t.Errorf("mirrored at once are %q, want %q", got, want)
		}
	}
}

// Behind any number of dead letters that are refused for themselves the others are mirrored, and
// those are tried again in the next walk.
func TestMirrorThatRefusesManyDeadLetters(t *testing.T) {
	r := setup(t)
	const bad = 2*mirrorRows + 1
	for range bad {
		r.put(sample{key: "bad"})
	}
	r.put(sample{key: "good"})
	tries := map[string]int{}
	b := &broker{refuse: func(ev *event.Event) sink.Outcome {
		tries[string(ev.Key)]++
		if string(ev.Key) == "bad" {
			return sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}
		}
		return sink.Outcome{State: sink.Confirmed}
	}}
	m := r.mirror(b)
	now := time.Now()
	for range 5 {
		_, err := m.once(r.ctx, now)
		r.must(err)
	}
	if tries["good"] != 1 || tries["bad"] != bad {
		t.Errorf("tries of the dead letters: %v, want one of each of %d", tries, bad+1)
	}
	b.refuse = nil
	for range 5 {
		_, err := m.once(r.ctx, now.Add(walkPause))
		r.must(err)
	}
	if left := value[int](r, `SELECT count(*) FROM cdc_relay.dead_letter WHERE mirrored_at IS NULL`); left > 0 {
		t.Errorf("%d dead letters are not mirrored after the fix", left)
	}
}

// One dead letter that the mirror's broker refuses for itself does not hold up the others, and is
// tried again.
func TestMirrorThatRefusesOneDeadLetter(t *testing.T) {
	r := setup(t)
	for _, id := range []string{"bad", "b", "c"} {
		r.put(sample{id: id})
	}
	failed := 0
	bk := &broker{refuse: func(ev *event.Event) sink.Outcome {
		if string(ev.ID) == "bad" {
			return sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}
		}
		return sink.Outcome{State: sink.Confirmed}
	}}
	m := r.mirror(bk)
	m.cfg.Failed = func(n int) { failed += n }
	now := time.Now()
	step := func(after time.Duration, want string) {
		t.Helper()
		now = now.Add(after)
		_, err := m.once(r.ctx, now)
		r.must(err)
		if got := bk.ids(); got != want {
			t.Errorf("offered are %q, want %q", got, want)
		}
	}
	step(0, "bad b c")
	step(0, "")
	r.put(sample{id: "d"})
	step(0, "d")
	step(walkPause-time.Second, "")
	step(time.Second, "bad")
	step(0, "")
	step(walkPause, "bad")
	for _, id := range []string{"e", "f"} { // new ones each time, so this walk never sees the end
		r.put(sample{id: id})
		step(maxWalk/2-time.Second, id)
	}
	bk.refuse = nil
	r.put(sample{id: "g"})
	step(2*time.Second, "bad g")
	step(walkPause, "")
	if failed != 3 {
		t.Errorf("%d refusals are counted", failed)
	}
}

// While the mirror's exchange is missing, or the broker away, it waits longer and longer, and
// nothing is noted.
func TestMirrorWithoutItsDestination(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	for _, o := range []sink.Outcome{
		{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange}}, {State: sink.Unknown}, {State: sink.Unsent},
	} {
		b := &broker{refuse: func(*event.Event) sink.Outcome { return o }}
		m := r.mirror(b)
		var waits []time.Duration
		for range 8 {
			wait, err := m.once(r.ctx, time.Now())
			r.must(err)
			waits = append(waits, wait)
		}
		if len(b.got) != 8 || waits[0] != time.Second || waits[1] != 2*time.Second || waits[7] != time.Minute {
			t.Errorf("%v: %d tries, waits %v", o.State, len(b.got), waits)
		}
		b.refuse = nil
		if _, err := m.once(r.ctx, time.Now()); err != nil || m.backoff != 0 {
			t.Errorf("after it is fixed: %v, backoff %s", err, m.backoff)
		}
		r.exec(`UPDATE cdc_relay.dead_letter SET mirrored_at = NULL`)
	}
}
