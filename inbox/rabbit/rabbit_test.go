package rabbit_test

import (
	"testing"
)

// A message that is delivered twice has its effect once.
func TestEffectOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	r.publish(event("1", "a"), event("1", "a"), event("2", "a"))
	r.run(c)
	r.wantEffects("1", "2")
}
