// Which ordering groups a lane knows to have rows. The table may have rows of more groups than
// memory holds, so a lane knows groups one by one up to a limit, and remembers of the others only
// in which exchange or topic they are.

package order

import (
	"sync/atomic"
	"time"
)

// MaxGroups is how many ordering groups with rows a line knows one by one: 34 MiB of memory. With
// more groups the order is still kept, at the cost of more reads. So no operator has to choose the
// number.
const MaxGroups = 100_000

// guardedRoom divides the room for groups while the disk guard is on. The groups then only wait for
// the end of the guard, and a walk finds many of them sooner than a read of each.
const guardedRoom = 16

// GroupRoom is how many ordering groups with rows the lanes of a line may know one by one, and how
// many they know.
type GroupRoom struct {
	limit   int64        // groups; MaxGroups, less in tests
	taken   atomic.Int64 // groups that the lanes know now
	waiting atomic.Int64 // known groups that have rows or are blocked
}

// NewGroupRoom makes the room of a line, for limit groups.
func NewGroupRoom(limit int) *GroupRoom { return &GroupRoom{limit: int64(limit)} }

// Waiting is how many groups are known to have rows, or to be blocked.
func (r *GroupRoom) Waiting() int { return int(r.waiting.Load()) }

// knownGroups is what a lane knows about which groups have rows: a list of groups one by one, the
// first to be forgotten first, and the exchanges and topics that it is unsure of. These may have
// rows of groups that are not in the list, because this leader has just begun or there was no room.
// In them the first event of an unknown group waits for a read of the group.
type knownGroups struct {
	room        *GroupRoom
	first, last *group
	// unsure has the exchanges and topics that may have rows of unknown groups; true means that a
	// group was forgotten since the last walk began
	unsure map[uint64]bool
	walkAt time.Time // when walks are asked for next; zero means that none is needed
}

// walkPause is the pause between two requests for walks, unless a pause of a destination ends in
// between. A group that was forgotten while it backed off is found again by the next walk.
const walkPause = 10 * time.Second

func newKnown(r *GroupRoom) knownGroups { return knownGroups{room: r, unsure: map[uint64]bool{}} }

// anyUnsure reports whether any exchange or topic may have rows of unknown groups.
func (k *knownGroups) anyUnsure() bool { return len(k.unsure) > 0 }

// mayHaveRows reports whether an exchange or topic may have rows of groups that the lane does not
// know.
func (k *knownGroups) mayHaveRows(exchangeOrTopic uint64) bool {
	_, is := k.unsure[exchangeOrTopic]
	return is
}

// beginWalk notes that a walk begins, which will find every group that was forgotten before. The
// lane is told of the begin before the walk reads. The walk misses only rows that are committed
// later, and the lane is told of those rows after the begin. The lane may be told of both in one
// Step, which forgets groups only after it has taken both.
func (m *Machine) beginWalk(exchangeOrTopic uint64) {
	if m.known.mayHaveRows(exchangeOrTopic) {
		m.known.unsure[exchangeOrTopic] = m.guarded // then what it finds is given back
	}
}

// endWalk makes the lane sure of an exchange or topic again, if no group was forgotten since the
// walk began. The walk may have passed a group that was forgotten later while the lane still knew
// it.
func (m *Machine) endWalk(exchangeOrTopic uint64) {
	// a lane that stops takes no groups in
	if forgotten, is := m.known.unsure[exchangeOrTopic]; !is || forgotten || m.stopping {
		return
	}
	delete(m.known.unsure, exchangeOrTopic)
	for g := m.known.first; g != nil; {
		next := g.next
		m.touch(g) // one that has no rows need not be known any more
		g = next
	}
}

// makeRoom adds a group to the list, if it is not there yet. If the list is then too long, groups
// at its beginning that only wait are forgotten. If none of them only waits, the list becomes
// longer than its limit all the same: each group in it then has an event or a row in memory, which
// bounds their number. A group that must stay moves to the end of the list, so that it does not
// hide others (TestGroupsThatStayDoNotKeepTheOthers).
func (m *Machine) makeRoom(g *group) {
	k := &m.known
	if k.has(g) {
		return
	}
	k.addGroup(g)
	limit := k.room.limit
	if m.guarded && !m.cfg.Block { // else no walk ends the doubt about an exchange
		limit /= guardedRoom
	}
	for tries := 0; k.room.taken.Load() > limit && k.first != g && tries < 64; tries++ {
		if old := k.first; old.canBeForgotten() {
			m.forgetGroup(old)
		} else {
			k.removeGroup(old)
			k.addGroup(old)
		}
	}
}

// has reports whether a group is in the list.
func (k *knownGroups) has(g *group) bool { return g.prev != nil || k.first == g }

// addGroup appends a group to the list.
func (k *knownGroups) addGroup(g *group) {
	k.room.taken.Add(1)
	if k.last == nil {
		k.first = g
	} else {
		k.last.next, g.prev = g, k.last
	}
	k.last = g
}

// forgetGroup drops a group to make room. If the group may have rows, its exchange or topic is
// unsure from now on.
func (m *Machine) forgetGroup(g *group) {
	if g.rows != none {
		m.noteForgotten(g.exchangeOrTopic)
	}
	m.endRest(g)
	m.dropGroup(g)
}

// noteForgotten notes that an exchange or topic has rows of a group that is not in the list, and
// sees to it that a walk will find them.
func (m *Machine) noteForgotten(exchangeOrTopic uint64) {
	m.known.unsure[exchangeOrTopic] = true
	if m.known.walkAt.IsZero() {
		m.known.walkAt = m.now.Add(walkPause)
	}
}

// removeGroup removes a group from the list, if it is there.
func (k *knownGroups) removeGroup(g *group) {
	if !k.has(g) {
		return
	}
	k.room.taken.Add(-1)
	if g.prev == nil {
		k.first = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		k.last = g.prev
	} else {
		g.next.prev = g.prev
	}
	g.prev, g.next = nil, nil
}

// askForWalks asks, when walkAt has come, for walks through the exchanges and topics of which
// groups were forgotten.
func (m *Machine) askForWalks() {
	if m.known.walkAt.IsZero() || m.known.walkAt.After(m.now) {
		return
	}
	m.known.walkAt = time.Time{}
	for exchangeOrTopic, forgotten := range m.known.unsure {
		if forgotten {
			m.out.Walk = append(m.out.Walk, exchangeOrTopic)
			m.known.walkAt = m.now.Add(walkPause)
		}
	}
}

// groupOf returns the state of an ordering group. If the lane has none, groupOf creates one in
// which the rows are unknown or none, as knownGroups says.
func (m *Machine) groupOf(id, exchangeOrTopic uint64) *group {
	g := m.groups[id]
	if g == nil {
		if g = m.spare; g == nil {
			g = new(group)
		} else {
			m.spare = g.next
		}
		*g = group{id: id, exchangeOrTopic: exchangeOrTopic}
		if m.known.mayHaveRows(exchangeOrTopic) {
			g.rows = unknown
		}
		m.groups[id] = g
	}
	return g
}

// dropGroup removes all that the lane has of a group, and keeps its memory for the next group.
func (m *Machine) dropGroup(g *group) {
	m.known.removeGroup(g)
	m.setRows(g, none)
	if g.wasSpecial {
		m.specialGroups--
	}
	delete(m.groups, g.id)
	*g = group{next: m.spare}
	m.spare = g
}
