// Plain lines, for a pipe.

package display

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Plain is a display that is read as a log: each said line, and the numbers in one line every two
// seconds.
type Plain struct {
	Out io.Writer

	mu   sync.Mutex
	next time.Duration // when the numbers are due
}

const plainEvery = 2 * time.Second

// Say writes a line, with the time since the demo began.
func (p *Plain) Say(at time.Duration, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.Out, "%s  %s\n", clock(at), text)
}

// Show writes the numbers in one line, at most every 2 s, and none in the phases Starting
// and Over.
func (p *Plain) Show(v *View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.Phase == Starting || v.Phase == Over || v.Elapsed < p.next {
		return
	}
	p.next = v.Elapsed + plainEvery
	fmt.Fprintln(p.Out, numbers(v))
}

// Close does nothing: every line stays.
func (p *Plain) Close() {}

// numbers is the view in one line.
func numbers(v *View) string {
	latency := "p50 - p99 -"
	if v.Latency.Count > 0 {
		latency = "p50 " + Short(v.Latency.P50) + " p99 " + Short(v.Latency.P99)
	}
	return fmt.Sprintf("%s  committed %s, delivered %s, duplicates %s, deferred %s, dead letters %s, %s, slot lag %s, broker %s, relay: %s",
		clock(v.Elapsed), Thousands(v.Committed), Thousands(v.Delivered), Thousands(v.Duplicates), Thousands(v.Sample.Deferred), Thousands(v.Dead),
		latency, Size(v.Lag),
		v.States[BrokerName], v.States[RelayName])
}
