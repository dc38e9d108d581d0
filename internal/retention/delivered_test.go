package retention

import "testing"

// TestDelivered: only rows that every slot has settled are deleted.
func TestDelivered(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("a", "b")
	r.want(r.left(), "a", "b")
	r.settle(r.slot)
	r.put("c")
	r.want(r.left(), "c")
}
