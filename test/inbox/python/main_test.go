// Package python runs the consumer in Python of examples/python, which docs/consuming-python.md
// shows, against real servers.
package python

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
