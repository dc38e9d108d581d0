package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

type paused struct{ Destination, Reason, Error string }

type status struct {
	State, Why, Role string
	Finding          string
	Slot             struct {
		Name     string
		LagBytes int64 `json:"lag_bytes"`
		Active   bool
	}
	Broker struct {
		Up          bool
		Why         string
		Connections int
		Paused      []paused
		PausedTotal int `json:"paused_total"`
	}
	InFlight struct {
		Events int
	} `json:"in_flight"`
	Deferred struct {
		CountedAt   time.Time `json:"counted_at"`
		Events      int
		WaitingKeys int `json:"waiting_keys"`
	}
	DeadLetters struct {
		Open int
	} `json:"dead_letters"`
	Totals struct {
		Published, Deferred, Failed uint64
	}
}

// state waits until the status has the state, and all the words in why.
func state(t *testing.T, relay *runner.Relay, want string, words ...string) status {
	t.Helper()
	var s status
	eventually(t, func() string {
		code, body, err := relay.Get(await.Context(t), "/api/v1/status")
		if err != nil || code != 200 {
			if !relay.Running() {
				t.Fatalf("the relay has ended: %s", relay.Log())
			}
			return fmt.Sprintf("the status answers %d: %v", code, err)
		}
		s = status{}
		must(t, json.Unmarshal([]byte(body), &s))
		for _, w := range words {
			if !strings.Contains(s.Why, w) {
				return fmt.Sprintf("no %q in %s", w, body)
			}
		}
		if s.State != want {
			return fmt.Sprintf("want state %q: %s", want, body)
		}
		return ""
	})
	return s
}

// deferred waits until one destination is paused and so many events are deferred, and the relay has
// heard of that and counted them.
func deferred(t *testing.T, relay *runner.Relay, events int) (s status) {
	t.Helper()
	eventually(t, func() string {
		s = state(t, relay, "destination paused")
		if s.Deferred.Events != events || s.Deferred.CountedAt.IsZero() || s.Totals.Deferred < uint64(events) || s.Broker.PausedTotal != 1 || len(s.Broker.Paused) != 1 {
			return fmt.Sprintf("want 1 destination paused, %d events deferred: %+v", events, s)
		}
		return ""
	})
	return s
}

// drained says "" when nothing is paused or deferred.
func drained(t *testing.T, relay *runner.Relay) string {
	t.Helper()
	return answers(t, relay, "/readyz", 200, `"paused":[],"paused_total":0,"deferred_events":0,"refused":[],"refused_total":0`)
}

// says waits until the admin port answers with the code and a body that has the words. What it
// tells is counted, and noted, a moment after it has happened.
func says(t *testing.T, relay *runner.Relay, path string, code int, words ...string) {
	t.Helper()
	eventually(t, func() string { return answers(t, relay, path, code, words...) })
}

// answers says "" when the admin port answers with the code and a body that has the words.
func answers(t *testing.T, relay *runner.Relay, path string, code int, words ...string) string {
	t.Helper()
	got, body, err := relay.Get(await.Context(t), path)
	if err != nil || got != code {
		return fmt.Sprintf("%s answers %d, want %d: %s (%v)", path, got, code, body, err)
	}
	for _, w := range words {
		if !strings.Contains(body, w) {
			return fmt.Sprintf("%s does not say %q: %s", path, w, body)
		}
	}
	return ""
}
