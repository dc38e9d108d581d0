package ops

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

// Heartbeat tells a loop that goes on from one that is stuck. Waiting for a broker or a server is going on: the loop
// beats while it waits.
type Heartbeat struct {
	name    string
	bound   time.Duration
	running func() (since time.Time) // when the loop began; zero while it does not run, and then it cannot be stuck
	last    atomic.Int64             // of the last beat, since origin; zero while at rest
}

// origin is what beats are told from. It keeps their times monotonic: a clock that is set has nothing stuck, and hides nothing.
var origin = time.Now()

// NewHeartbeat is one loop, which counts as stuck when it has not beaten for bound. running says since when it runs, zero
// for not now.
func NewHeartbeat(name string, bound time.Duration, running func() (since time.Time)) *Heartbeat {
	return &Heartbeat{name: name, bound: bound, running: running}
}

// NewWork is a loop that says when it waits for something to do, and cannot be stuck then: see Work.
func NewWork(name string, bound time.Duration) *Heartbeat {
	h := &Heartbeat{name: name, bound: bound}
	h.running = h.beat
	return h
}

// Work is called by such a loop with each thing that it begins (true), and before it waits (false).
func (h *Heartbeat) Work(atWork bool) {
	if atWork {
		h.Beat()
		return
	}
	h.last.Store(0)
}

// Beat is called by the loop every time around, by any goroutine.
func (h *Heartbeat) Beat() { h.last.Store(int64(time.Since(origin))) }

// beat is the time of the last one, zero for none.
func (h *Heartbeat) beat() time.Time {
	if last := h.last.Load(); last != 0 {
		return origin.Add(time.Duration(last))
	}
	return time.Time{}
}

// Stuck is "" or the sentence that says for how long.
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

// Health is the body of /healthz.
type Health struct {
	Healthy bool     `json:"healthy"`
	Stuck   []string `json:"stuck"` // one sentence a loop
}

func health(beats []*Heartbeat, now time.Time) Health {
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

func (s *Snapshot) role() string {
	switch {
	case s.leads():
		return RoleLeader
	case s.Phase == Standby:
		return RoleStandby
	}
	return RoleNone
}

// Readiness is the body of /readyz. What is paused, parked or refused does not make a relay unready: the others flow.
type Readiness struct {
	Ready        bool         `json:"ready"`
	Role         string       `json:"role"`
	Reasons      []string     `json:"reasons"` // why it is not ready
	Paused       []Paused     `json:"paused"`  // destinations, the longest first
	PausedTotal  int          `json:"paused_total"`
	ParkedEvents int          `json:"parked_events"`
	Refused      []RefusedRow `json:"refused"` // rows that the database refuses, the longest first
	RefusedTotal int          `json:"refused_total"`
}

// readiness: a leader is ready with its stream and its broker up, a standby is ready to take over, unless a leader is
// asked for.
func readiness(s *Snapshot, wantLeader bool) Readiness {
	r := Readiness{
		Role: s.role(), Reasons: []string{},
		Paused: listed(s.Paused), PausedTotal: s.PausedTotal, ParkedEvents: s.Siding.Parked,
		Refused: listed(s.Siding.Refused), RefusedTotal: s.Siding.RefusedTotal,
	}
	switch {
	case s.Phase == Standby:
		if wantLeader {
			r.Reasons = append(r.Reasons, because("standby", s.Why))
		}
	case s.Phase == Waiting:
		r.Reasons = append(r.Reasons, because("waiting for postgres", s.Why))
	case s.Phase != Streaming:
		r.Reasons = append(r.Reasons, because(string(cmp.Or(s.Phase, Starting)), s.Why))
	}
	if s.Phase != Standby && !s.Sink.Up && s.Phase != Stopped {
		r.Reasons = append(r.Reasons, because("broker down", s.Sink.Why))
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// listed is never null in JSON.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
