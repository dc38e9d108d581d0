// Package dashboards runs every query of deploy/grafana on a real Prometheus that has scraped a
// relay under load and faults: none is empty, none is an error, and what the panels count is what
// the checker counts.
package dashboards

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
