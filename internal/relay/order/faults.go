// A check of all ordering groups: what no group may be, whatever happens. It is the table of status
// (groups.go) as code, so that simulations find a broken state where it begins and not by its
// consequences. Only tests use it, after each Step (Config.AfterStep).

package order

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Faults says what is wrong with the ordering groups after a Step, and prints each group with a
// fault; "" means that nothing is wrong. It takes time by the number of groups, and of events in
// memory.
func (m *Machine) Faults() string {
	var all []string
	wrong := func(is bool, what string, counts ...int) {
		if is {
			all = append(all, fmt.Sprint(what, ": ", counts))
		}
	}
	reading, special, listed, waiting, resting := 0, 0, 0, 0, map[Target]int{}
	flying := m.countFlying()
	for id, g := range m.groups {
		if faults := g.faults(m, flying[id]); len(faults) > 0 {
			all = append(all, fmt.Sprintf("group %d: %s\n%+v, %d rows and replays fly", id, strings.Join(faults, "; "), g, flying[id]))
		}
		reading += countIf(g.readIsOut())
		special += countIf(g.wasSpecial)
		listed += countIf(m.known.has(g))
		waiting += countIf(g.rows >= some)
		if g.status == behindPause {
			resting[g.target]++
		}
	}
	wrong(reading != m.readsOut, "reads that are out, and their count", reading, m.readsOut)
	wrong(special != m.specialGroups, "special groups, and their count", special, m.specialGroups)
	wrong(len(m.touched) > 0, "groups that were touched after the last look", len(m.touched))
	room := m.known.room // other lanes may have more of it
	wrong(int(room.taken.Load()) < listed, "known groups, and what the room has", listed, int(room.taken.Load()))
	wrong(room.Waiting() < waiting, "groups that wait, and what the room has", waiting, room.Waiting())
	for t, r := range m.resting {
		wrong(r.groups != resting[t] || r.groups == 0, "groups that rest behind a target, and their count", resting[t], r.groups)
	}
	var last *group
	for g := m.known.first; g != nil && g.prev == last && m.groups[g.id] == g; g = g.next {
		last = g
		listed--
	}
	wrong(listed != 0 || last != m.known.last, "known groups that the list lacks; or it is torn", listed)
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// faults says what is wrong with one group. flying is how many rows and replays of the group were
// counted in open and among those sent apart.
func (g *group) faults(m *Machine, flying int) (faults []string) {
	want := func(is bool, what string) {
		if !is {
			faults = append(faults, what)
		}
	}
	reads := !m.stopping && !m.guarded && g.rows != blocked // it may be read

	// what each status needs, and what only some have
	want(g.status == idle || g.status == carryingOut || g.rows != none, "it waits for rows, and has none")
	switch g.status {
	case idle, reading:
	case toRead:
		want(slices.Contains(m.toRead, g), "it is to be read, and not in the queue")
	case backingOff:
		want(slices.Contains(m.due, dueGroup{g.dueAt, g.id}), "it waits for a time that nobody knows")
		want(g.rows >= some, "it backs off without a row")
	case behindPause:
		want(m.resting[g.target] != nil && slices.Contains(m.resting[g.target].order, g.id), "it rests, and nobody wakes it")
		want(g.rows >= some, "it rests without a row")
	case writing:
		want(g.pendingResults > 0 && g.readAgain && g.rows >= some, "it waits for a result that was not given")
	case carryingOut:
		want(g.pendingResults > 0 && g.front == nil && !g.readIsOut(), "requests are carried out, and it is not at rest")
	}
	want(g.status <= reading || g.hand.n == 0, "rows are in hand, and it waits for something else")
	want(g.status <= backingOff && g.rows == some || g.drainedAt.IsZero(), "it drains, and none of its rows may go")
	want(g.status <= reading || !g.probing, "it probes, and it waits for something else")
	want(!g.probing || g.status != idle || g.staleRead || g.hand.n+g.flying > 0 || m.stopping, "its probe is out, and it has no row")
	want(!g.staleRead || g.status != reading, "two reads are out")

	// counts and lists
	n := 0
	for e := g.hand.list.First; e != nil; e = e.Next {
		n++
		want(e.Row.Group == g.id, "a row of another group is in hand")
	}
	want(g.hand.n == n, "the rows in hand are miscounted")
	want(g.flying == flying, "the rows that fly are miscounted")
	want(!g.firstApart || g.flying == 1, "its first row is sent apart, and not alone")
	want(0 <= g.repeated && g.repeated <= g.deferred && g.pendingResults >= 0, "a count is below zero")
	want(0 <= g.credit && g.credit <= mostCredit, "its credit is out of bounds")
	want(g.inTurn == slices.Contains(m.turns, g) && (g.inTurn || n == 0), "its rows are not in turn")
	want(g.front == nil || m.cfg.OneByOne && g.front.Group == g.id, "its front is not its own")

	// what is known of its rows
	want(g.rows >= some || g.deferred == 0, "events are deferred, and no row is known")
	want(g.rows != none || !g.moreRows && g.hand.n == 0 && !g.readAgain, "it has rows, and none is known")
	want(!less(g.lastRead, g.lastGone), "a row is gone that was not read")
	want(g.rows < some || m.known.has(g), "it has rows, and is not in the list of known groups")
	undecided := g.rows == unknown && g.front != nil // its first event has just come
	want(g.wasSpecial == g.isSpecial() || undecided, "it has changed, and was not touched")
	want(!g.touched, "it was touched after the last look")

	// nothing stands still
	goesOn := g.status != idle || g.staleRead || g.hand.n+g.flying+g.deferred+g.pendingResults > 0 || g.front != nil || g.deadLettering
	want(goesOn || !reads || g.rows != some, "it has rows, and nothing reads them")
	want(goesOn || !reads || g.waiting.First == nil || g.replay != nil, "events wait in it for nothing")
	want(goesOn || m.stopping || len(g.requests) == 0, "requests wait for nothing")
	want(g.waiting.First == nil || g.rows != some || !reads || g.front != nil || g.deadLettering || g.replay != nil ||
		!m.lookAtWaitingAt.IsZero(), "events wait behind rows, and nobody looks at them again")
	return faults
}

// countFlying counts the rows and replays that are in open or sent apart, by group. A probe that is
// out is in no list: firstApart stands for it.
func (m *Machine) countFlying() map[uint64]int {
	n := map[uint64]int{}
	count := func(e *inflight.Event) {
		switch {
		case !e.IsRow():
		case !isReplay(e):
			n[e.Row.Group]++
		case e.Group != 0 && m.groups[e.Group] != nil && m.groups[e.Group].replay == e:
			n[e.Group]++
		}
	}
	for _, e := range m.open.items {
		count(e)
	}
	for e := range m.apart {
		if isReplay(e) {
			count(e)
		}
	}
	for id, g := range m.groups {
		n[id] += countIf(g.firstApart)
	}
	return n
}

// less reports whether row a is read before row b.
func less(a, b store.RowPosition) bool {
	return a.Incarnation < b.Incarnation || a.Incarnation == b.Incarnation && a.Position.Less(b.Position)
}

func countIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (r rows) String() string { return [...]string{"none", "unknown", "some", "blocked"}[r] }

func (s status) String() string {
	return [...]string{"idle", "toRead", "reading", "backingOff", "behindPause", "writing", "carryingOut"}[s]
}
