package compare

import "container/list"

// Options say what is compared.
type Options struct {
	IDHeader  string   // by which messages are paired
	KeyHeader string   // that has the key by which order is compared; "": the record's key, or without records the routing key
	Ignore    []string // names of headers that are left out
	Strict    bool     // nothing else is left out
	Times     bool     // compare the records' times
	Kafka     bool     // the order of headers means something, and so do keys
	// Partitions compares partitions, which two topics must have the same number of.
	Partitions bool
	Remember   int // paired ids that are known again when they come a second time
	Excerpts   bool
}

// Matcher pairs the messages of both sides. It is used from one goroutine.
type Matcher struct {
	Counts

	opt     Options
	report  func(Difference)
	ends    bool
	number  [2]int64
	waiting [2]map[string]*list.Element // of *held
	queue   [2]list.List                // of *held, the oldest first
	bytes   [2]int64
	seen    *seen
	orders  orders
}

// Counts are what has been found so far. Arrays are by Side.
type Counts struct {
	Events     [2]int64 // messages with an id, repetitions and all
	Duplicates [2]int64
	NoID       [2]int64 // messages without an id; they are not compared
	AtTheEdge  [2]int64 // without a counterpart, which may have come before the beginning or after the end
	GivenUp    [2]int64 // of those without a counterpart, the ones that were not held any longer

	Compared, Equal int64 // pairs
	Differences     map[Kind]int64
	LeftOut         LeftOut
}

// LeftOut counts pairs in which something differs, or may differ, that is left out.
type LeftOut struct {
	ContextHeaders int64 `json:"context_headers"`    // of Debezium's run
	SchemaNames    int64 `json:"value_schema_names"` // theirs is that of the first event
	Times          int64 `json:"times"`
	Partitions     int64 `json:"partitions_without_key"` // of records without a key
	Ignored        int64 `json:"ignored_headers"`        // by Options.Ignore
}

// held is a message that waits for its counterpart.
type held struct {
	id     string
	m      Message
	number int64
	chain  chain
}

// New makes a matcher; report is told every difference as it is found.
func New(opt Options, report func(Difference)) *Matcher {
	x := &Matcher{opt: opt, report: report, seen: newSeen(max(opt.Remember, 1)), orders: orders{}}
	x.Counts.Differences = map[Kind]int64{}
	for side := range x.waiting {
		x.waiting[side] = map[string]*list.Element{}
	}
	return x
}

// Add takes the next message of a side.
func (x *Matcher) Add(side Side, m Message) {
	id, ok := m.id(x.opt.IDHeader)
	if !ok {
		x.noID(side, &m)
		return
	}
	x.Events[side]++
	x.number[side]++
	if x.waiting[side][id] != nil || x.seen.has(id) {
		x.Duplicates[side]++
		return
	}
	now := &held{id: id, m: m, number: x.number[side], chain: x.chain(&m)}
	if e := x.waiting[side.other()][id]; e != nil {
		x.seen.add(id)
		x.pair(side, now, x.take(side.other(), e))
		return
	}
	if x.ends {
		x.AtTheEdge[side]++
		return
	}
	x.waiting[side][id] = x.queue[side].PushBack(now)
	x.bytes[side] += m.size()
	x.orders.wait(now.chain)
}

func (x *Matcher) noID(side Side, m *Message) {
	x.NoID[side]++
	if x.opt.Strict {
		d := Difference{Kind: KindNoID, Byte: -1}
		d.Where[side] = m.Where
		x.found(d)
	}
}

// take ends the wait of a message; its place in orders is the caller's.
func (x *Matcher) take(side Side, e *list.Element) *held {
	h := x.queue[side].Remove(e).(*held)
	delete(x.waiting[side], h.id)
	x.bytes[side] -= h.m.size()
	return h
}

func (x *Matcher) chain(m *Message) chain {
	if x.opt.KeyHeader != "" {
		h, _ := m.header(x.opt.KeyHeader)
		return chain{unit: m.Unit, key: string(h.Value), unordered: h.Value == nil}
	}
	if x.opt.Kafka {
		return chain{unit: m.Unit, key: string(m.Key), unordered: m.Key == nil}
	}
	return chain{unit: m.Unit, key: m.RoutingKey}
}

// pair compares a message that has just come with the one of the other side that has waited.
func (x *Matcher) pair(side Side, now, waited *held) {
	x.Compared++
	pair := [2]*held{}
	pair[side], pair[side.other()] = now, waited
	differs := x.compare(pair)
	if now.chain != waited.chain {
		x.orders.gone(waited.chain) // a difference already, and two numbers that say nothing of each other
	} else if before, first, swapped := x.orders.pair(now.chain, now.id, [2]int64{pair[Theirs].number, pair[Ours].number}); swapped && !now.chain.unordered {
		x.differ(pair, Difference{Kind: KindOrder, Before: before, First: first.String(), Byte: -1})
		differs = true
	}
	if !differs {
		x.Equal++
	}
}

// Held is how many messages of a side wait for their counterparts, and about how many bytes they take.
func (x *Matcher) Held(side Side) (n int, bytes int64) { return x.queue[side].Len(), x.bytes[side] }

// GiveUp takes the oldest message of a side that waits for one without a counterpart.
func (x *Matcher) GiveUp(side Side) {
	e := x.queue[side].Front()
	if e == nil {
		return
	}
	h := x.take(side, e)
	x.orders.gone(h.chain)
	if h.m.Early {
		x.AtTheEdge[side]++
		return
	}
	x.GivenUp[side]++
	x.alone(side, h)
}

// End says that no more events are taken in; the counterparts of those that wait still are.
func (x *Matcher) End() { x.ends = true }

// Finish takes what still waits for without a counterpart. Cut short, it says nothing of them: they may have been on their way.
func (x *Matcher) Finish(cut bool) {
	for side := range x.queue {
		for e := x.queue[side].Front(); e != nil; e = x.queue[side].Front() {
			h := x.take(Side(side), e)
			x.orders.gone(h.chain)
			if cut || h.m.Early {
				x.AtTheEdge[side]++
			} else {
				x.alone(Side(side), h)
			}
		}
	}
}

func (x *Matcher) alone(side Side, h *held) {
	d := Difference{Kind: KindMissing, ID: h.id, Only: side.String(), Byte: -1}
	d.Where[side] = h.m.Where
	x.found(d)
}

// found counts and reports.
func (x *Matcher) found(d Difference) {
	x.Differences[d.Kind]++
	x.report(d)
}

// differ is found for a pair.
func (x *Matcher) differ(pair [2]*held, d Difference) {
	d.ID = pair[Theirs].id
	d.Where = [2]string{pair[Theirs].m.Where, pair[Ours].m.Where}
	x.found(d)
}

// Total is the number of differences.
func (c *Counts) Total() (n int64) {
	for _, one := range c.Differences {
		n += one
	}
	return n
}
