//go:build nightly

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// TestDeletedRowsAreDelivered ten times, and on Kafka, too.
func TestDeletedRowsAreDeliveredOften(t *testing.T) {
	for _, kind := range stand.Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			kind.OnRouted(t, func(s *stand.Stand) { deleting(s, 10) })
		})
	}
}
