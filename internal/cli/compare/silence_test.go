package compare

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A side that sends nothing is named, with what is read and what is likely. It is given up after
// --timeout, unless both are only quiet for a while.
func TestSilentSide(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	begin := func(f compareFlags) *silence {
		f.timeout = time.Minute
		s := newSilence(&f, [2]string{`exchange "events" by queue q1`, `exchange "shadow" by queue q2`}, false, start)
		return &s
	}
	none, waits := [2]bool{}, [2]int{100, 0}

	s := begin(compareFlags{count: 10})
	s.note(theirs, at(2))
	for _, c := range []struct {
		seconds int
		want    string
	}{
		{4, ""},
		{6, `waiting: exchange "shadow" by queue q2 (ours) has sent nothing for 6.0s`},
		{7, ""},
		{35, ""},
		{36, `waiting: exchange "shadow" by queue q2 (ours) has sent nothing for 36s`},
	} {
		s.last[theirs] = at(c.seconds)
		if got := s.notice(at(c.seconds), waits, none); got != c.want {
			t.Errorf("after %d s: %q, want %q", c.seconds, got, c.want)
		}
	}
	if err := s.giveUp(at(59), none); err != nil {
		t.Errorf("gave up early: %v", err)
	}
	s.last[theirs] = at(60)
	var err *silentError
	if !errors.As(s.giveUp(at(60), none), &err) || !strings.Contains(err.what, `"shadow"`) || strings.Contains(err.what, `"events"`) {
		t.Fatalf("%+v", err)
	}
	for _, part := range []string{"cdc-relay does not run", "--routing-key", "--timeout"} {
		if !strings.Contains(err.fix(), part) {
			t.Errorf("no %q in %q", part, err.fix())
		}
	}

	// by --count alone a side ends it that falls silent later, and so do both
	s = begin(compareFlags{count: 10})
	s.note(theirs, at(1))
	s.note(ours, at(1))
	if got := s.notice(at(31), [2]int{}, none); got != "waiting: both sides have sent nothing for 30s" {
		t.Errorf("%q", got)
	}
	if s.giveUp(at(61), none) == nil {
		t.Error("waits for ever")
	}
	if got := s.notice(at(70), waits, none); got != `waiting: exchange "shadow" by queue q2 (ours) has sent nothing for 1m9s after 1 message` {
		t.Errorf("%q", got)
	}

	// with --for both may be quiet, and one that was never heard of ends it
	s = begin(compareFlags{period: time.Hour})
	s.note(theirs, at(1))
	s.note(ours, at(1))
	if err := s.giveUp(at(600), none); err != nil {
		t.Errorf("gave up a quiet outbox: %v", err)
	}
	s = begin(compareFlags{period: time.Hour})
	err = nil
	if !errors.As(s.giveUp(at(60), none), &err) || !strings.Contains(err.causes, "no event is written") {
		t.Errorf("%v", err)
	}

	// nothing is wanted of a side that is read to its end, or that waits for the other one
	s = begin(compareFlags{})
	if err, text := s.giveUp(at(60), [2]bool{true, true}), s.notice(at(60), waits, [2]bool{true, true}); err != nil || text != "" {
		t.Errorf("%v %q", err, text)
	}
}
