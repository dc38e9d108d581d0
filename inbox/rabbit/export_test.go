package rabbit

import "time"

// Hurry makes waits of a minute or less shorter.
func (c *Consumer) Hurry(d time.Duration) { c.watchEvery, c.confirmWithin, c.unwind = d, d, d }
