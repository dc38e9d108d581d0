package kafka_test

import "testing"

// A message has its effect, and then its offset is committed.
func TestMessages(t *testing.T) {
	r := newRig(t, 1)
	r.publish(event("1", "a"), event("2", "a"))
	stop := r.run(r.consumer())
	r.wantEffects("1", "2")
	r.publish(event("3", "a"), event("2", "a"))
	r.wantEffects("1", "2", "3")
	r.wantOffset(0, 4)
	stop()
}
