// Which ordering groups a lane knows, within a bounded memory.

package order

import (
	"sync/atomic"
	"time"
)

// MaxGroups is how many ordering groups with rows a line knows one by one: 34 MiB of memory. Above
// this number the order is still kept, at the cost of more reads. So no operator has to choose the
// number.
const MaxGroups = 100_000

// guardedRoom is the part of the room that groups take while the disk guard is on: they only wait
// for its end, and a walk finds many of them sooner than reads of each.
const guardedRoom = 16

// GroupRoom is how many ordering groups with rows the lanes of a line may know one by one.
type GroupRoom struct {
	limit   int64        // groups; MaxGroups, less in tests
	taken   atomic.Int64 // groups that the lanes know now
	waiting atomic.Int64 // of those, the ones with rows, and blocked ones
}

// NewGroupRoom makes room for limit groups.
func NewGroupRoom(limit int) *GroupRoom { return &GroupRoom{limit: int64(limit)} }

// Waiting is how many groups are known to have rows, or to be blocked.
func (r *GroupRoom) Waiting() int { return int(r.waiting.Load()) }

// knownGroups is what a lane knows about which groups have rows: a list of groups one by one, the
// first to be forgotten first, and the exchanges and topics it is unsure of. Those may have rows of
// groups that are not in the list, because this leader has just begun or there was no room. There
// the first event of an unknown group waits for a read of the group.
type knownGroups struct {
	room        *GroupRoom
	first, last *group
	// unsure exchanges and topics; true: a group of it was forgotten since its last walk began
	unsure map[uint64]bool
	walkAt time.Time // when walks are asked for next; zero: there is no need
}

// walkPause is the pause between two requests for a walk, when no pause ends in between: a group
// that was forgotten while it waited for a time is found again after it.
const walkPause = 10 * time.Second

func newKnown(r *GroupRoom) knownGroups { return knownGroups{room: r, unsure: map[uint64]bool{}} }

func (k *knownGroups) anyUnsure() bool { return len(k.unsure) > 0 }

func (k *knownGroups) mayHaveRows(exchangeOrTopic uint64) bool {
	_, is := k.unsure[exchangeOrTopic]
	return is
}

// beginWalk notes that a walk begins, which finds every group that was forgotten before. The lane
// is told of the begin before the walk reads. The walk misses only rows that are committed later,
// and the lane is told of those after the begin. Both may come with one Step, which forgets groups
// only after it has taken both.
func (m *Machine) beginWalk(exchangeOrTopic uint64) {
	if m.known.mayHaveRows(exchangeOrTopic) {
		m.known.unsure[exchangeOrTopic] = m.guarded // then what it finds is given back
	}
}

// endWalk makes the lane sure of an exchange or topic again, if no group was forgotten since the
// walk began: the walk may have passed such a group while it was still known.
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

// makeRoom adds a group to the list, if it is not there yet. Without room, the first groups of the
// list that only wait are forgotten. If none only waits, the group is added all the same: then each
// has an event or a row in memory, which bounds their number. A group that must stay moves to the
// end of the list, so that it does not hide others (TestGroupsThatStayDoNotKeepTheOthers).
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

// forgetGroup drops a group. If it has rows, its exchange or topic has unknown groups from now on.
func (m *Machine) forgetGroup(g *group) {
	if g.rows != none {
		m.noteForgotten(g.exchangeOrTopic)
	}
	m.endRest(g)
	m.dropGroup(g)
}

// noteForgotten notes that an exchange or topic has rows of a group that is not in the list: a walk
// is to find it.
func (m *Machine) noteForgotten(exchangeOrTopic uint64) {
	m.known.unsure[exchangeOrTopic] = true
	if m.known.walkAt.IsZero() {
		m.known.walkAt = m.now.Add(walkPause)
	}
}

// removeGroup removes a group from the list.
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

// askForWalks asks for walks through the exchanges and topics of which groups were forgotten.
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

// groupOf returns the state of an ordering group. It creates the state if there is none.
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
