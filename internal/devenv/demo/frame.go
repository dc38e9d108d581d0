package main

import (
	"fmt"
	"strings"
	"time"
)

// This file draws what is known as lines of text. It knows neither terminal nor clock.

// phase is a part of the demo.
type phase int

const (
	starting phase = iota
	flowing
	poisoned
	outage
	catchingUp
	mistaken
	judging
	over
)

var phases = []string{"start", "flow", "poison", "outage", "catch up", "mistake", "verdict"}

// The actors, from left to right.
const (
	ordersName   = "order service"
	postgresName = "PostgreSQL"
	relayName    = "cdc-relay"
	brokerName   = "broker" // shown under its own name
	consumerName = "consumer"
)

var actors = []struct {
	name  string
	width int // of its column; the relay's longest state is "waiting for postgres"
}{{ordersName, 17}, {postgresName, 14}, {relayName, 23}, {brokerName, 12}, {consumerName, 8}}

// view is everything that is shown at one moment.
type view struct {
	elapsed time.Duration
	phase   phase
	now     string            // what happens, in words
	broker  string            // its name
	states  map[string]string // of the actors

	sample
	rolledBack int
	latency    latency // of the last two seconds
	commits    trail   // per second
	deliveries trail   // per second
	waiting    trail   // events committed and not delivered
	parked     trail   // of these, the ones that are parked
	lags       trail   // bytes
}

// What a full bar stands for at least.
const (
	fullRate    = 800  // events per second
	fullWaiting = 1000 // events, parked ones too
	fullLag     = 1 << 20
)

// frame is the view in 80 columns.
func frame(v *view, p paint) []string {
	title := fmt.Sprintf("  %s%*s", p.bold("cdc-relay demo"), 62, clock(v.elapsed))
	lines := []string{"", title, ""}
	lines = append(lines, pipeline(v, p)...)
	lines = append(lines, "", phaseLine(v.phase, p), "  "+p.bold(v.now), "")
	if v.phase == starting {
		return lines // there are no numbers yet
	}
	lines = append(lines,
		row("committed", thousands(v.committed), rate(v.commits), p.green(v.commits.bars(fullRate))),
		row("delivered", thousands(v.delivered), rate(v.deliveries), p.green(v.deliveries.bars(fullRate))),
		row("waiting", thousands(v.committed-v.delivered), "", p.yellow(v.waiting.bars(fullWaiting))),
		row("parked", thousands(v.sample.parked), "", p.yellow(v.parked.bars(fullWaiting))),
		row("slot lag", size(v.lag), "", p.yellow(v.lags.bars(fullLag))),
		row("duplicates", thousands(v.duplicates), "", fmt.Sprintf("rolled back %s   dead letters %s", thousands(v.rolledBack), thousands(v.dead))),
		"",
		latencyLine(v.latency, p),
	)
	return lines
}

// row is a name, a number, a number per second and what fits behind them.
func row(name, number, perSecond, rest string) string {
	return strings.TrimRight(fmt.Sprintf("  %-11s%12s%11s  %s", name, number, perSecond, rest), " ")
}

func rate(t trail) string { return thousands(int(t.last()+0.5)) + "/s" }

func latencyLine(l latency, p paint) string {
	if l.count == 0 {
		return "  commit to consumer   " + p.dim("nothing arrived in the last 2 s")
	}
	return fmt.Sprintf("  commit to consumer   p50 %s   p99 %s   %s",
		p.bold(fmt.Sprintf("%8s", short(l.p50))), p.bold(fmt.Sprintf("%8s", short(l.p99))), p.dim("last 2 s"))
}

// pipeline is the actors and, below each, its state.
func pipeline(v *view, p paint) []string {
	names, states := "  ", "  "
	for i, a := range actors {
		state := v.states[a.name]
		states += p.state(state) + pad(state, a.width)
		name := a.name
		if name == brokerName {
			name = v.broker
		}
		if i == len(actors)-1 {
			names += p.bold(name)
			break
		}
		arrow := strings.Repeat("─", a.width-len(name)-3) + "▶"
		names += p.bold(name) + " " + p.dim(arrow) + " "
	}
	return []string{names, strings.TrimRight(states, " ")}
}

func pad(s string, width int) string { return strings.Repeat(" ", max(0, width-len([]rune(s)))) }

func phaseLine(now phase, p paint) string {
	var parts []string
	for i, name := range phases {
		switch {
		case phase(i) < now:
			parts = append(parts, p.green("✓ "+name))
		case phase(i) == now:
			parts = append(parts, p.cyan("▶ "+name))
		default:
			parts = append(parts, p.dim("· "+name))
		}
	}
	return "  " + strings.Join(parts, "   ")
}

// clock is minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// thousands is a number with a comma between each three digits.
func thousands(n int) string {
	s := fmt.Sprint(max(n, -n))
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n < 0 {
		s = "-" + s
	}
	return s
}

// size is a number of bytes in the unit that leaves at most four digits.
func size(n int64) string {
	amount, units := float64(n), []string{"B", "KiB", "MiB", "GiB"}
	unit := 0
	for amount >= 1000 && unit < len(units)-1 {
		amount, unit = amount/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", amount, units[unit])
}

// short is a latency in three digits or fewer, in ms or s.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
