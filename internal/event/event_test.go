package event

import (
	"testing"
	"unsafe"
)

// The decoder fills an Event for each row, and the line copies it. A pointer to what few events
// have costs less than its value here.
func TestSizeOfAnEvent(t *testing.T) {
	if size := unsafe.Sizeof(Event{}); size > 360 {
		t.Errorf("an event has %d bytes: what it has got costs each event a copy", size)
	}
}
