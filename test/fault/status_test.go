package fault

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// apiStatus is what these tests read of /api/v1/status.
type apiStatus struct {
	State  string `json:"state"`
	Why    string `json:"why"`
	Role   string `json:"role"`
	Broker struct {
		Paused []pausedDestination `json:"paused"`
	} `json:"broker"`
	Deferred struct {
		Events      int `json:"events"`
		WaitingKeys int `json:"waiting_keys"`
	} `json:"deferred"`
}

type pausedDestination struct {
	Destination string    `json:"destination"`
	Reason      string    `json:"reason"`
	Words       string    `json:"error"`
	Since       time.Time `json:"since"`
}

func status(s *stand.Stand, r *runner.Relay) (st apiStatus) {
	s.T.Helper()
	_, body, err := r.Get(s.Context(), "/api/v1/status")
	s.Must(err)
	s.Must(json.Unmarshal([]byte(body), &st))
	return st
}

// counted waits until a number of the retry table or of dead letters is n. A count that is under
// way when rows come or go may have them twice or not at all, until the next one: ten seconds
// later, or fifty times as late as the count took.
func counted(s *stand.Stand, r *runner.Relay, name string, n int) {
	s.T.Helper()
	s.Until(fmt.Sprintf("%s to be %d", name, n), func() bool { return s.Metric(r, name) == float64(n) })
}

func stopped(s *stand.Stand, r *runner.Relay, code int) {
	s.T.Helper()
	if got := r.Stop(s.T); got != code {
		s.T.Errorf("relay stopped with %d, want %d", got, code)
	}
}
