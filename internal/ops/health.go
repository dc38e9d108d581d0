// Health and readiness: whether a loop is stuck, and whether a relay does its part. /healthz and
// /readyz answer with them.

package ops

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

// Health is the body of /healthz.
type Health struct {
	Healthy bool     `json:"healthy"`
	Stuck   []string `json:"stuck"` // one sentence for each loop that is stuck
}

// HealthOf checks the heartbeat of every loop.
func HealthOf(beats []*Heartbeat, now time.Time) Health {
	h := Health{Stuck: []string{}}
	for _, beat := range beats {
		if why := beat.Stuck(now); why != "" {
			h.Stuck = append(h.Stuck, why)
		}
	}
	h.Healthy = len(h.Stuck) == 0
	return h
}

// Roles in status and readiness.
const (
	RoleLeader  = "leader"
	RoleStandby = "standby"
	RoleNone    = "none" // starting, waiting for PostgreSQL, or stopped
)

// Role returns leader, standby or none.
func (s *Snapshot) Role() string {
	switch {
	case s.Leads():
		return RoleLeader
	case s.Phase == Standby:
		return RoleStandby
	}
	return RoleNone
}

// Relay is one of the relays of a slot, as the status names it.
type Relay struct {
	Name string `json:"name"` // its host and process
	// its admin.advertise, an http or https URL; "" when it has none
	Address string `json:"address"`
}

// Readiness is the body of /readyz. What is paused, deferred or refused does not make a relay
// unready: the others flow.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Role    string   `json:"role"`
	Reasons []string `json:"reasons"` // why it is not ready
	// the ID that accept takes, when it has stopped over a finding
	Finding        string   `json:"finding,omitempty"`
	Paused         []Paused `json:"paused"` // destinations, the longest first
	PausedTotal    int      `json:"paused_total"`
	DeferredEvents int      `json:"deferred_events"`
	// rows that the database refuses, the longest first
	Refused      []RefusedRow `json:"refused"`
	RefusedTotal int          `json:"refused_total"`
	// standbys that hold delivery back
	WaitingForStandby []string `json:"waiting_for_standby"`
}

// Readiness says whether the relay does its part: a leader is ready with its stream and its broker
// up, a standby when it has reached its broker once, unless a leader is asked for.
//
// A standby that never did could not take over. If it were ready, a rollout with a wrong address
// of the broker would replace every healthy pod by such a one. Once is enough: a later outage is
// most likely the leader's too, and if it made every relay unready, nothing would answer behind a
// load balancer, and a rollout that could not help would be stopped by what it has not caused.
func (s *Snapshot) Readiness(wantLeader bool) Readiness {
	r := Readiness{
		Role: s.Role(), Reasons: []string{}, Finding: s.Finding,
		Paused: orEmpty(s.Paused), PausedTotal: s.PausedTotal, DeferredEvents: s.RetryTable.Deferred,
		Refused: orEmpty(s.RetryTable.Refused), RefusedTotal: s.RetryTable.RefusedTotal,
		WaitingForStandby: orEmpty(s.WaitingForStandby),
	}
	switch {
	case s.Phase == Standby:
		if wantLeader {
			r.Reasons = append(r.Reasons, withReason("standby", s.Why))
		}
		if !s.Sink.Up && !s.Sink.WasUp {
			r.Reasons = append(r.Reasons, withReason("broker not reached since the start", s.Sink.Why))
		}
	case s.Phase == Waiting:
		r.Reasons = append(r.Reasons, withReason("waiting for postgres", s.Why))
	case s.Phase != Streaming:
		r.Reasons = append(r.Reasons, withReason(string(cmp.Or(s.Phase, Starting)), s.Why))
	}
	if s.Phase != Standby && !s.Sink.Up && s.Phase != Stopped {
		r.Reasons = append(r.Reasons, withReason("broker down", s.Sink.Why))
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// withReason joins what is wrong with why, if that is known.
func withReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// orEmpty returns an empty list for nil, so that JSON has [] and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Heartbeat shows that a loop makes progress. Waiting for a broker or a server counts as progress:
// the loop beats while it waits.
type Heartbeat struct {
	name    string
	bound   time.Duration
	running func() (since time.Time) // when the loop began; zero means that it does not run
	// the time of the last beat since origin; zero while the loop waits for work
	last atomic.Int64
}

// origin is the zero of beats. It keeps their times monotonic: setting the clock neither makes a
// loop look stuck nor hides one.
var origin = time.Now()

// NewHeartbeat makes the heartbeat of a loop, which counts as stuck when it has not beaten for
// bound. running returns since when the loop runs, or zero while it does not.
func NewHeartbeat(name string, bound time.Duration, running func() (since time.Time)) *Heartbeat {
	return &Heartbeat{name: name, bound: bound, running: running}
}

// NewWork makes the heartbeat of a loop that says when it waits for something to do, and cannot be
// stuck meanwhile. The loop calls Work.
func NewWork(name string, bound time.Duration) *Heartbeat {
	h := &Heartbeat{name: name, bound: bound}
	h.running = h.beat
	return h
}

// Work is called by a loop of NewWork: with true at each thing that it begins, with false before it
// waits.
func (h *Heartbeat) Work(atWork bool) {
	if atWork {
		h.Beat()
		return
	}
	h.last.Store(0)
}

// Beat is called by the loop each time around; any goroutine may call it.
func (h *Heartbeat) Beat() { h.last.Store(int64(time.Since(origin))) }

// beat returns the time of the last beat, or zero without one.
func (h *Heartbeat) beat() time.Time {
	if last := h.last.Load(); last != 0 {
		return origin.Add(time.Duration(last))
	}
	return time.Time{}
}

// Stuck returns a sentence about how long the loop has been stuck, or "" when it is not.
func (h *Heartbeat) Stuck(now time.Time) string {
	since := h.running()
	if since.IsZero() {
		return ""
	}
	if last := h.beat(); last.After(since) {
		since = last
	}
	if silent := now.Sub(since); silent > h.bound {
		return fmt.Sprintf("%s has been stuck for %s (bound %s)", h.name, silent.Round(time.Millisecond), h.bound)
	}
	return ""
}
