// What the relay says of itself: the probes, a word for everybody and details for those who may
// read, the status and the slots.

package admin

import (
	"net/http"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// Health is what /healthz answers.
func (s *Server) Health() ops.Health { return ops.HealthOf(s.cfg.Heartbeats, time.Now()) }

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	h := s.Health()
	var body any = struct {
		Healthy bool `json:"healthy"`
	}{h.Healthy}
	if s.knows(r) {
		body = h
	}
	writeJSON(w, okOr503(h.Healthy), body)
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	role := r.URL.Query().Get("role")
	if role != "" && role != ops.RoleLeader {
		writeProblem(w, http.StatusBadRequest, "role is leader, or left out")
		return
	}
	snapshot := s.cfg.Snapshot()
	ready := snapshot.Readiness(role == ops.RoleLeader)
	var body any = struct {
		Ready bool   `json:"ready"`
		Role  string `json:"role"`
	}{ready.Ready, ready.Role}
	if s.knows(r) {
		body = ready
	}
	writeJSON(w, okOr503(ready.Ready), body)
}

func okOr503(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Status())
}

// Status is what /api/v1/status answers.
func (s *Server) Status() ops.Status {
	snapshot, now := s.cfg.Snapshot(), time.Now().UTC()
	status := snapshot.Status(s.cfg.Metrics.Rates(now), s.cfg.Metrics.Totals(), now)
	status.Version, status.StartedAt = s.cfg.Version, s.cfg.StartedAt.UTC()
	return status
}

func (s *Server) slots(w http.ResponseWriter, _ *http.Request) {
	snapshot := s.cfg.Snapshot()
	items := snapshot.Slots(time.Now())
	writeJSON(w, http.StatusOK, ops.Slots{Items: items, Total: max(len(items), 1+snapshot.OtherTotal)})
}
