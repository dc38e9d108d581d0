// The check that an error is an event.Stop with the exit code and reason that a test wants.

package replicationtest

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// WantStop ends the test unless err is an event.Stop with this exit code and reason, and returns
// it.
func WantStop(t *testing.T, err error, code int, reason string) *event.Stop {
	t.Helper()
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != code || stop.Reason != reason {
		t.Fatalf("got %v, want a stop with code %d, reason %s", err, code, reason)
	}
	return stop
}
