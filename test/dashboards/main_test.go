// Package dashboards runs every query of deploy/grafana on a real Prometheus that has scraped a relay under load and faults: none
// is empty, none is an error, and what the panels count is what the checker counts. docs/img is drawn from the same answers.
package dashboards

import (
	"flag"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

var (
	record = flag.String("record", "", "file that gets the answers of all queries, for tools/dashboards to draw them")
	pace   = flag.Duration("pace", 0, "how much longer each part of the play lasts, so that there is something to see")
)

// linger is for the eye alone.
func linger() {
	if *pace > 0 {
		<-time.After(*pace)
	}
}

func TestMain(m *testing.M) { devenv.Main(m) }
