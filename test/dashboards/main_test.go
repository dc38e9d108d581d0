// Package dashboards runs every query of deploy/grafana on a real Prometheus that has scraped a
// relay and a consumer under load: none is empty, and none is an error.
package dashboards

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
