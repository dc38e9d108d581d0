// Package display draws the demo: a frame of numbers on a terminal, or plain lines.
package display

import (
	"fmt"
	"strings"
	"time"
)

// Phase is a part of the demo.
type Phase int

const (
	Starting Phase = iota
	Flowing
	Poisoned
	Outage
	CatchingUp
	Mistaken
	Judging
	Over
)

var phases = []string{"start", "flow", "poison", "outage", "catch up", "mistake", "verdict"}

// The actors, from left to right.
const (
	OrdersName   = "order service"
	PostgresName = "PostgreSQL"
	RelayName    = "cdc-relay"
	BrokerName   = "broker" // shown under its own name
	ConsumerName = "consumer"
)

var actors = []struct {
	name  string
	width int // of its column; the relay's longest state is "waiting for postgres"
}{{OrdersName, 17}, {PostgresName, 14}, {RelayName, 23}, {BrokerName, 12}, {ConsumerName, 8}}

// View is everything that is shown at one moment.
type View struct {
	Elapsed time.Duration
	Phase   Phase
	Now     string            // what happens, in words
	Broker  string            // its name
	States  map[string]string // of the actors

	Sample
	RolledBack int
	Latency    Latency // of the last two seconds
	Commits    Trail   // per second
	Deliveries Trail   // per second
	Waiting    Trail   // events committed and not delivered
	Deferred   Trail   // of these, the ones that are deferred
	Lags       Trail   // bytes
}

// What a full bar stands for at least.
const (
	fullRate    = 800  // events per second
	fullWaiting = 1000 // events, deferred ones too
	fullLag     = 1 << 20
)

// frame is the view in 80 columns.
func frame(v *View, p Paint) []string {
	title := fmt.Sprintf("  %s%*s", p.Bold("cdc-relay demo"), 62, clock(v.Elapsed))
	lines := []string{"", title, ""}
	lines = append(lines, pipeline(v, p)...)
	lines = append(lines, "", phaseLine(v.Phase, p), "  "+p.Bold(v.Now), "")
	if v.Phase == Starting {
		return lines // there are no numbers yet
	}
	lines = append(lines,
		row("committed", Thousands(v.Committed), rate(v.Commits), p.Green(v.Commits.bars(fullRate))),
		row("delivered", Thousands(v.Delivered), rate(v.Deliveries), p.Green(v.Deliveries.bars(fullRate))),
		row("waiting", Thousands(v.Committed-v.Delivered), "", p.yellow(v.Waiting.bars(fullWaiting))),
		row("deferred", Thousands(v.Sample.Deferred), "", p.yellow(v.Deferred.bars(fullWaiting))),
		row("slot lag", Size(v.Lag), "", p.yellow(v.Lags.bars(fullLag))),
		row("duplicates", Thousands(v.Duplicates), "", fmt.Sprintf("rolled back %s   dead letters %s", Thousands(v.RolledBack), Thousands(v.Dead))),
		"",
		latencyLine(v.Latency, p),
	)
	return lines
}

// row is a name, a number, a number per second and what fits behind them.
func row(name, number, perSecond, rest string) string {
	return strings.TrimRight(fmt.Sprintf("  %-11s%12s%11s  %s", name, number, perSecond, rest), " ")
}

func rate(t Trail) string { return Thousands(int(t.Last()+0.5)) + "/s" }

func latencyLine(l Latency, p Paint) string {
	if l.Count == 0 {
		return "  commit to consumer   " + p.Dim("nothing arrived in the last 2 s")
	}
	return fmt.Sprintf("  commit to consumer   p50 %s   p99 %s   %s",
		p.Bold(fmt.Sprintf("%8s", Short(l.P50))), p.Bold(fmt.Sprintf("%8s", Short(l.P99))), p.Dim("last 2 s"))
}

// pipeline is the actors and, below each, its state.
func pipeline(v *View, p Paint) []string {
	names, states := "  ", "  "
	for i, a := range actors {
		state := v.States[a.name]
		states += p.state(state) + pad(state, a.width)
		name := a.name
		if name == BrokerName {
			name = v.Broker
		}
		if i == len(actors)-1 {
			names += p.Bold(name)
			break
		}
		arrow := strings.Repeat("─", a.width-len(name)-3) + "▶"
		names += p.Bold(name) + " " + p.Dim(arrow) + " "
	}
	return []string{names, strings.TrimRight(states, " ")}
}

func pad(s string, width int) string { return strings.Repeat(" ", max(0, width-len([]rune(s)))) }

func phaseLine(now Phase, p Paint) string {
	var parts []string
	for i, name := range phases {
		switch {
		case Phase(i) < now:
			parts = append(parts, p.Green("✓ "+name))
		case Phase(i) == now:
			parts = append(parts, p.cyan("▶ "+name))
		default:
			parts = append(parts, p.Dim("· "+name))
		}
	}
	return "  " + strings.Join(parts, "   ")
}

// clock is minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// Thousands is a number with a comma between each three digits.
func Thousands(n int) string {
	s := fmt.Sprint(max(n, -n))
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n < 0 {
		s = "-" + s
	}
	return s
}

// Size is a number of bytes in the unit that leaves at most four digits.
func Size(n int64) string {
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

// Short is a latency in three digits or fewer, in ms or s.
func Short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// Sample is what the witnesses said last.
type Sample struct {
	At         time.Time // of the database's answer
	Postgres   string    // up, down
	Committed  int
	Delivered  int // distinct events
	Duplicates int
	Deferred   int   // rows of the retry table
	Dead       int   // dead letters that are open
	Lag        int64 // bytes of WAL between the slot's confirmed position and the server's
	Relay      string
}
