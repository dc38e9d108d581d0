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

// Room is how many ordering groups with rows the lanes of a line may know one by one.
type Room struct {
	limit   int64
	taken   atomic.Int64
	waiting atomic.Int64 // of those, the ones with rows
}

// NewRoom makes room for so many groups.
func NewRoom(limit int) *Room { return &Room{limit: int64(limit)} }

// Waiting is how many groups are known to have rows, or to be blocked.
func (r *Room) Waiting() int { return int(r.waiting.Load()) }

// known are the ordering groups of a lane that it knows to have rows, or to have none; and the
// exchanges and topics that may have rows of groups that it does not know: because this leader has
// just begun, or because there was no room. There the first event of an unknown group waits for a
// read of the group.
type known struct {
	room        *Room
	first, last *group
	unsure      map[uint64]bool // whether a group was forgotten since a walk began
	at          time.Time       // of the next request for walks
}

// walkPause is the pause between two requests for a walk, when no pause ends in between: a group
// that was forgotten while it waited for a time is found again after it.
const walkPause = 10 * time.Second

func newKnown(r *Room) known { return known{room: r, unsure: map[uint64]bool{}} }

func (k *known) any() bool { return len(k.unsure) > 0 }

func (k *known) mayHaveRows(exchangeOrTopic uint64) bool {
	_, is := k.unsure[exchangeOrTopic]
	return is
}

// walkBegins takes the begin of a walk: it finds every group that was forgotten before. The lane is
// told of the begin before the walk reads. The walk misses a row only if it was committed later, so
// the lane is told of that row after the begin. Both may come with one Step, which forgets groups
// only after it has taken both.
func (m *Machine) walkBegins(exchangeOrTopic uint64) {
	if m.known.mayHaveRows(exchangeOrTopic) {
		m.known.unsure[exchangeOrTopic] = m.guarded // then what it finds is given back
	}
}

// walkEnds takes the end of a walk. It counts only if no group was forgotten since the walk began:
// such a group may have been known while the walk passed it.
func (m *Machine) walkEnds(exchangeOrTopic uint64) {
	// a lane that stops takes no groups in
	if forgotten, is := m.known.unsure[exchangeOrTopic]; !is || forgotten || m.stop {
		return
	}
	delete(m.known.unsure, exchangeOrTopic)
	for g := m.known.first; g != nil; {
		next := g.next
		m.touch(g) // one that has no rows need not be known any more
		g = next
	}
}

// makeRoom counts a group, if it is not counted yet. Where there is no room, the first ones that
// only wait are forgotten; where there is none such, the group is counted all the same: then each
// group has an event or a row in memory, and their number is bounded. A group that must stay moves
// to the end of the list, so that those that must stay for long do not hide the others.
func (m *Machine) makeRoom(g *group) {
	k := &m.known
	if g.counted {
		return
	}
	k.add(g)
	limit := k.room.limit
	if m.guarded && !m.cfg.Block { // else no walk ends the doubt about an exchange
		limit /= guardedRoom
	}
	for tries := 0; k.room.taken.Load() > limit && k.first != g && tries < 64; tries++ {
		if old := k.first; old.canBeForgotten() {
			m.forget(old)
		} else {
			k.remove(old)
			k.add(old)
		}
	}
}

// add adds a group at the end of the list.
func (k *known) add(g *group) {
	g.counted = true
	k.room.taken.Add(1)
	if k.last == nil {
		k.first = g
	} else {
		k.last.next, g.prev = g, k.last
	}
	k.last = g
}

// forget drops a group. If it has rows, its exchange or topic has unknown groups from now on.
func (m *Machine) forget(g *group) {
	if g.rows != none || g.blocked {
		m.forgot(g.exchangeOrTopic)
	}
	m.unrest(g)
	m.drop(g)
}

// forgot notes that an exchange or topic has rows of an unknown group, which a walk is to find.
func (m *Machine) forgot(exchangeOrTopic uint64) {
	m.known.unsure[exchangeOrTopic] = true
	if m.known.at.IsZero() {
		m.known.at = m.now.Add(walkPause)
	}
}

// remove removes a group from the list.
func (k *known) remove(g *group) {
	if !g.counted {
		return
	}
	g.counted = false
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
	if m.known.at.IsZero() || m.known.at.After(m.now) {
		return
	}
	m.known.at = time.Time{}
	for exchangeOrTopic, forgotten := range m.known.unsure {
		if forgotten {
			m.out.Walk = append(m.out.Walk, exchangeOrTopic)
			m.known.at = m.now.Add(walkPause)
		}
	}
}

// group returns the state of an ordering group. It creates the state if there is none.
func (m *Machine) group(id, exchangeOrTopic uint64) *group {
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

func (m *Machine) drop(g *group) {
	m.known.remove(g)
	m.countWaiting(g, false)
	if g.wasSpecial {
		m.special--
	}
	delete(m.groups, g.id)
	*g = group{next: m.spare}
	m.spare = g
}

func (m *Machine) countWaiting(g *group, is bool) {
	switch {
	case is && !g.wasWaiting:
		m.known.room.waiting.Add(1)
	case !is && g.wasWaiting:
		m.known.room.waiting.Add(-1)
	}
	g.wasWaiting = is
}
