package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// plain is a display that is read as a log: each said line, and the numbers in one line every two seconds.
type plain struct {
	out io.Writer

	mu   sync.Mutex
	next time.Duration // when the numbers are due
}

const plainEvery = 2 * time.Second

func (p *plain) say(at time.Duration, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%s  %s\n", clock(at), text)
}

func (p *plain) show(v *view) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.phase == starting || v.phase == over || v.elapsed < p.next {
		return
	}
	p.next = v.elapsed + plainEvery
	fmt.Fprintln(p.out, numbers(v))
}

func (p *plain) close() {}

// numbers is the view in one line.
func numbers(v *view) string {
	latency := "p50 - p99 -"
	if v.latency.count > 0 {
		latency = "p50 " + short(v.latency.p50) + " p99 " + short(v.latency.p99)
	}
	return fmt.Sprintf("%s  committed %s, delivered %s, duplicates %s, parked %s, dead letters %s, %s, slot lag %s, broker %s, relay: %s",
		clock(v.elapsed), thousands(v.committed), thousands(v.delivered), thousands(v.duplicates), thousands(v.sample.parked), thousands(v.dead),
		latency, size(v.lag),
		v.states[brokerName], v.states[relayName])
}
