// Rows that are sent apart from the lane's calls, so that no other event waits for their answers.

package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// probed is a row that was sent apart, and what became of it.
type probed struct {
	item    *item
	outcome sink.Outcome
}

// probe sends the rows that go apart. While one is away, admits lets nothing else of its ordering
// group go: a new event waits because the row is counted, and another row because g.alone is set. So
// nothing overtakes the row, however late its answer is.
func (ln *lane) probe(ctx context.Context) {
	for _, it := range ln.probing {
		ln.probes.Go(func() {
			out, err := ln.line.prober.Probe(ctx, &it.ev, it.refusals() > 0)
			if err != nil && out.State != sink.Confirmed && out.State != sink.Rejected {
				out = sink.Outcome{State: sink.Unknown}
			}
			ln.mu.Lock()
			ln.probed = append(ln.probed, probed{it, out})
			asleep := ln.asleep
			ln.asleep = false
			ln.mu.Unlock()
			if asleep {
				ln.signal()
			}
		})
	}
	clear(ln.probing)
	ln.probing = ln.probing[:0]
}

// takeProbed handles the outcome of a row that was sent apart, as judge handles those of a call. One
// in doubt goes back to the table, where it stays the first of its ordering group.
func (ln *lane) takeProbed(p probed) {
	c := &ln.call
	c.items, c.outcomes = append(c.items[:0], p.item), append(c.outcomes[:0], p.outcome)
	if p.outcome.State == sink.Confirmed || p.outcome.State == sink.Rejected {
		ln.judge(time.Now())
		return
	}
	ln.returnRow(p.item, sink.Outcome{State: sink.Unsent})
	if g := ln.groups[p.item.group]; g != nil {
		ln.advance(g)
	}
}
