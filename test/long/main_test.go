//go:build nightly

// Package long has the fault tests that take minutes: many seeds, and waits that are part of the promise.
package long

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

func TestMain(m *testing.M) { devenv.Main(m) }
