// What a relay's metrics say.

package stand

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// Metric is the value of a relay's metric, with its labels if it has any; 0 when the relay does not
// have it.
func (s *Stand) Metric(r *runner.Relay, name string) (value float64) {
	s.T.Helper()
	_, body, err := r.Get(s.Context(), "/metrics")
	s.Must(err)
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			value, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
			s.Must(err)
		}
	}
	return value
}

// InDoubt is how many events were deferred that may be in Kafka's log all the same: those whose
// partition did not answer.
func (s *Stand) InDoubt(r *runner.Relay) (n int) {
	s.T.Helper()
	for _, reason := range []string{"unconfirmed", "no_leader", "too_few_replicas"} {
		n += int(s.Metric(r, fmt.Sprintf(`cdc_relay_rejections_total{class="destination",reason=%q}`, reason)))
	}
	return n
}
