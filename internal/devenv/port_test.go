package devenv

import (
	"slices"
	"testing"
)

// The ports of one server differ: as many as this are never so by chance.
func TestFreePortsDiffer(t *testing.T) {
	const n = 500
	ports, err := freePorts(n)
	must(t, err)
	slices.Sort(ports)
	if got := len(slices.Compact(ports)); got != n {
		t.Errorf("%d different ports, want %d", got, n)
	}
}
