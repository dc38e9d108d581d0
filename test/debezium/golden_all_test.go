//go:build testall

package debezium

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// TestSameAsDebezium of all other groups.
func TestEachGroupIsSameAsDebezium(t *testing.T) {
	sameAsDebezium(t, slices.DeleteFunc(cases.All(), func(g cases.Group) bool { return slices.Contains(first, g.Name) }))
}
