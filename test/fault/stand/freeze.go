// Stopping a leader at work in its retry table (SIGSTOP): a standby takes over, then the former
// leader goes on.

package stand

import (
	"slices"
	"testing"
)

// frozen are the states in which a leader is stopped: those that concern the database alone.
var frozen = states[1:5]

// Freeze stops the leader at work; a standby leads and finishes; then the former leader goes on,
// and ends, or stands by, without having changed a row. What it had asked for reaches the server
// late, too. If it stands by it leads again in the end.
func (w Work) Freeze(s *Stand, in state) {
	s.T.Helper()
	c := w.on(s, 1)
	s.T.Logf("stopped %s, %s", w.Name, in.name)
	c.way = c.Proxy(c.PostgresAddr)
	w.begin(c)
	standby := c.Start()
	flush, epoch := c.Flush(), c.epoch()
	leave := in.enter(c, w)
	if at := c.Flush(); c.epoch() == epoch {
		// else it took so long to come to the state that the standby has taken over already
		flush = at
	}
	c.Must(c.relay.Freeze())
	c.Until("a standby that takes over", func() bool { return c.epoch() > epoch })
	leave()
	c.Leads(standby)
	bound := c.Since(flush)
	c.fix()
	c.More(100)
	c.stop()
	if w.end != nil {
		w.end(c)
	}
	c.AwaitEmpty()
	before := c.Quiet()
	c.Must(c.relay.Thaw())
	ended := c.Deposed(c.relay)
	if after := c.Quiet(); !slices.Equal(before, after) {
		c.T.Errorf("the former leader has changed rows: %d before, %d after it\nbefore: %.3000q\nafter:  %.3000q", len(before), len(after), before, after)
	}
	bound += c.Since(flush) // what the former leader still had in its hands
	c.Leads(standby)
	if !ended {
		if code := standby.Stop(c.T); code != 0 {
			c.T.Errorf("the standby that led stops with %d", code)
		}
		c.Leads(c.relay)
	}
	c.Write(30)
	c.finish(w, bound)
}

// epoch is that of the leader.
func (c *crash) epoch() (n int64) {
	c.T.Helper()
	c.Query([]any{&n}, `SELECT epoch FROM cdc_relay.slots WHERE slot = $1`, c.Slot)
	return n
}

// FreezeAll stops a leader at each work. all: in each state, on each kind of broker; else in one of
// them, in turn.
func FreezeAll(t *testing.T, all bool) {
	t.Helper()
	n := 0
	for _, w := range Works {
		for i, in := range frozen {
			for k, kind := range Kinds {
				if !all && (n%len(frozen) != i || n%len(Kinds) != k) {
					continue
				}
				t.Run(w.Name+"/"+in.name+"/"+kind.Name, func(t *testing.T) {
					Parallel(t)
					w.Freeze(Routed(t, kind), in)
				})
			}
		}
		n++
	}
}
