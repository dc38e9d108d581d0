package inflight

import "testing"

// A list whose events were taken holds on to none of them.
func TestEmptyListHoldsNothing(t *testing.T) {
	var l List
	a, b := &Event{}, &Event{}
	l.Push(a)
	l.Push(b)
	if l.Pop() != a || l.Pop() != b || l != (List{}) {
		t.Errorf("after two of two events were taken the list is %+v", l)
	}
}
