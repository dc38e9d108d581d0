//go:build nightly

// Package long has the fault tests that take minutes: many seeds, and waits that are part of the
// promise.
package long

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
