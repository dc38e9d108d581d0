package operate

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// Of a row that is not known to be sent it is said what to do.
func TestEventNotKnownToBeSent(t *testing.T) {
	for state, said := range map[string]bool{dlq.EventUnknown: true, dlq.EventDelivered: false} {
		var out strings.Builder
		if err := printEvent(&out, &dlq.Event{State: state}); err != nil || strings.Contains(out.String(), "`cdc-relay recover`") != said {
			t.Errorf("%s: %v, %s", state, err, out.String())
		}
	}
}
