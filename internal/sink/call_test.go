package sink

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The error of a call that ends in part keeps the contract: something is unknown, or all is unsent.
// A call that was answered to the last event has no error, though its context has ended.
func TestUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		was, is []State
		keys    string // of the events, one character each
		fails   bool
	}{
		"nothing was sent":                       {was: []State{Unsent, Unsent}, is: []State{Unsent, Unsent}, keys: "ab", fails: true},
		"some are in doubt":                      {was: []State{Confirmed, Unknown, Unsent}, is: []State{Confirmed, Unknown, Unsent}, keys: "abc", fails: true},
		"the rest was not sent":                  {was: []State{Confirmed, Unsent}, is: []State{Confirmed, Unknown}, keys: "ab", fails: true},
		"one is rejected, the rest was not sent": {was: []State{Rejected, Unsent, Unsent}, is: []State{Rejected, Unsent, Unknown}, keys: "aab", fails: true},
		"before the rejected one":                {was: []State{Unsent, Rejected, Unsent}, is: []State{Unknown, Rejected, Unsent}, keys: "aaa", fails: true},
		"all is answered":                        {was: []State{Confirmed, Rejected}, is: []State{Confirmed, Rejected}, keys: "ab"},
		"all is answered, one is rejected":       {was: []State{Rejected, Confirmed, Unsent}, is: []State{Rejected, Confirmed, Unsent}, keys: "aba"},
	} {
		t.Run(name, func(t *testing.T) {
			var events []*event.Event
			for _, key := range c.keys {
				events = append(events, &event.Event{Hash: uint64(key), Ordered: true})
			}
			call := NewCall(nil, func(*event.Event) uint64 { return 1 })
			call.Begin(events, make([]Outcome, len(events)))
			for i, state := range c.was {
				if state == Rejected {
					call.Reject(i, &Fault{})
				} else {
					call.Outcomes[i].State = state
				}
			}
			cause := errors.New("the end")
			if err := call.Unavailable(cause); c.fails != errors.Is(err, cause) {
				t.Errorf("the error is %v", err)
			}
			for i, o := range call.Outcomes {
				if o.State != c.is[i] {
					t.Errorf("event %d is %s, want %s", i, o.State, c.is[i])
				}
			}
		})
	}
}

// A rejection stops its key in its exchange or topic, and nothing else.
func TestBehindRejected(t *testing.T) {
	elsewhere := &event.Event{Hash: 1, Ordered: true, Route: &event.Route{}}
	events := []*event.Event{
		{Hash: 1, Ordered: true}, {Hash: 1, Ordered: true}, {Hash: 1, Ordered: true}, {Hash: 2, Ordered: true}, {Hash: 1}, elsewhere,
	}
	call := NewCall(nil, func(ev *event.Event) uint64 {
		if ev == elsewhere {
			return 8
		}
		return 4
	})
	for range 2 { // the next call knows nothing of it
		call.Begin(events, make([]Outcome, len(events)))
		for i := range events {
			if call.IsBehindRejected(i) {
				t.Errorf("event %d waits for nothing", i)
			}
		}
		call.Reject(2, &Fault{})
		call.Reject(1, &Fault{})
		for i := range events {
			if got := call.IsBehindRejected(i); got != (i == 2) {
				t.Errorf("event %d: %v", i, got)
			}
		}
		call.End()
	}
}

// Each call reports its own answers.
func TestAnswers(t *testing.T) {
	var got [][4]int
	call := NewCall(func(acks, nacks, returned, timeouts int) {
		got = append(got, [4]int{acks, nacks, returned, timeouts})
	}, nil)
	for range 2 {
		call.Begin(nil, nil)
		call.Acks, call.Nacks, call.Returned, call.Timeouts = call.Acks+1, call.Nacks+2, call.Returned+3, call.Timeouts+4
		call.End()
	}
	if want := [4]int{1, 2, 3, 4}; len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("reported %v", got)
	}
}
