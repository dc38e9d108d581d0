package order

import (
	"strings"
	"testing"
)

// failOnFaults is an AfterStep that panics with the faults of a machine. With up to 30 groups it
// looks at them after each Step, with more the less often.
func failOnFaults() func(*Machine) {
	owed := 0
	return func(m *Machine) {
		if owed -= 100; owed > 0 {
			return
		}
		owed = len(m.groups)*len(m.groups)/10 + len(m.due)
		if faults := m.Faults(); faults != "" {
			panic(faults)
		}
	}
}

// Each illegal group is named, and printed.
func TestFaultsAreSeen(t *testing.T) {
	for want, spoil := range map[string]func(m *Machine, g *group){
		"nothing reads them":     func(_ *Machine, g *group) { g.rows, g.wasSpecial = some, true },
		"was not touched":        func(_ *Machine, g *group) { g.deadLettering = true },
		"nobody wakes it":        func(_ *Machine, g *group) { g.status = behindPause },
		"that nobody knows":      func(_ *Machine, g *group) { g.status = backingOff },
		"not in the queue":       func(_ *Machine, g *group) { g.status = toRead },
		"that was not given":     func(_ *Machine, g *group) { g.status = writing },
		"it is not at rest":      func(_ *Machine, g *group) { g.status = carryingOut },
		"reads that are out":     func(_ *Machine, g *group) { g.staleRead = true },
		"in hand are miscounted": func(_ *Machine, g *group) { g.hand.n++ },
		"that fly":               func(_ *Machine, g *group) { g.flying++ },
		"below zero":             func(_ *Machine, g *group) { g.deferred-- },
		"is torn":                func(m *Machine, g *group) { m.known.addGroup(g); g.prev = g },
	} {
		m := newTestMachine(Config{OneByOne: true})
		g := m.groupOf(1, theExchange)
		spoil(m, g)
		if faults := m.Faults(); !strings.Contains(faults, want) {
			t.Errorf("%q is not in %q", want, faults)
		}
	}
}
