package devenv

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// History is what two outside witnesses have seen: the database (what was committed) and the queue (what arrived). The
// relay itself is not asked.
type History struct {
	Committed  []Row      // from ReadCommitted, after the last commit
	RolledBack []string   // from Workload.RolledBack
	Deliveries []Delivery // from Consumer.Deliveries, after Drain
	Marks      []Mark     // from Consumer.Marks; none: early reports are not looked for

	MaxDuplicates int  // duplicates allowed; -1: any number
	NoKeyOrder    bool // ordering: none
	CommitOrder   bool // ordering: commit; first arrivals of all keys come in the order of their positions
}

// Verdict is what Check found. The lists hold ids, each at most once.
type Verdict struct {
	Committed   int // rows in the database
	Delivered   int // of these, how many arrived
	Duplicates  int // deliveries of an id that had arrived before, without those of Redelivered
	Redelivered int // of these, the ones the broker sent again by itself, for want of an acknowledgement

	Lost                 []string // committed, never arrived
	Phantom              []string // arrived, rolled back or unknown to the database
	OutOfOrder           []string // arrived for the first time after a later one of their key (CommitOrder: of any key)
	Altered              []string // key or number in the message are not those of the row
	Moved                []string // cdc_position differs between deliveries, or is not in commit order of the key
	FlushAheadOfDelivery []string // see Mark

	MaxDuplicates int
}

// Mark says that confirmed_flush_lsn was Flush at a moment before the first After deliveries had all arrived: it was read
// first, and then a message was put at the end of the queue, before which exactly these have come out of it. On Kafka the
// end offsets of all logs were read then: before the mark are also the records below them, whenever they arrive.
//
// The rule: an event whose commit record starts below Flush and which arrived for the first time after the mark was not
// in the queue when its position was reported; PostgreSQL would not have sent it again. A queue gives its messages out in
// the order in which it took them, so an event that was confirmed before the report stands before the mark, however slow
// the consumer is: there are no false alarms as long as every event is routed to this queue. An early report is seen when
// a sample falls between it and the event's arrival in the queue.
type Mark struct {
	Flush pglogrepl.LSN
	After int
	Ends  map[TopicPartition]int64 // Kafka
}

// Check compares the two.
func Check(h History) Verdict {
	c := checking{
		h: h, v: Verdict{Committed: len(h.Committed), MaxDuplicates: h.MaxDuplicates},
		rows: make(map[string]*row, len(h.Committed)), phantoms: map[string]bool{},
		last: map[keyIn]int64{}, highest: map[TopicPartition]outbox.Position{},
	}
	for _, r := range h.Committed {
		c.rows[r.ID] = &row{Row: r, first: -1}
	}
	for i := range h.Deliveries {
		c.delivery(i)
	}
	c.lost()
	c.positions()
	c.flushAhead()
	return c.v
}

// checking is the state of one Check.
type checking struct {
	h        History
	v        Verdict
	rows     map[string]*row
	phantoms map[string]bool
	last     map[keyIn]int64                    // number of the latest row of each key that has arrived
	highest  map[TopicPartition]outbox.Position // of all first arrivals
}

// keyIn is a key in a partition: on Kafka the order of arrival means something within a partition only.
type keyIn struct {
	key  string
	from TopicPartition
}

// row is a committed row and what has arrived of it.
type row struct {
	Row
	first    int // index in Deliveries; -1: nothing
	position outbox.Position
	altered  bool
	moved    bool
}

func (c *checking) delivery(i int) {
	d := &c.h.Deliveries[i]
	r := c.rows[d.ID]
	if r == nil {
		if !c.phantoms[d.ID] {
			c.phantoms[d.ID] = true
			c.v.Phantom = append(c.v.Phantom, d.ID)
		}
		return
	}
	if !r.altered && (d.Key != "" && d.Key != r.Key || d.Seq != 0 && d.Seq != r.Seq) {
		r.altered = true
		c.v.Altered = append(c.v.Altered, d.ID)
	}
	if r.first >= 0 {
		c.again(r, d)
		return
	}
	r.first, r.position = i, d.Position
	c.v.Delivered++
	key := keyIn{r.Key, d.From}
	late := r.Seq < c.last[key] && !c.h.NoKeyOrder || c.h.CommitOrder && d.Position.Less(c.highest[d.From])
	if late {
		c.v.OutOfOrder = append(c.v.OutOfOrder, d.ID)
	}
	c.last[key] = max(c.last[key], r.Seq)
	if c.highest[d.From].Less(d.Position) {
		c.highest[d.From] = d.Position
	}
}

// again is a delivery of a row that had arrived.
func (c *checking) again(r *row, d *Delivery) {
	if d.Redelivered {
		c.v.Redelivered++
	} else {
		c.v.Duplicates++
	}
	if d.Position != r.position && !r.moved {
		r.moved = true
		c.v.Moved = append(c.v.Moved, d.ID)
	}
}

func (c *checking) lost() {
	for _, r := range c.h.Committed {
		if c.rows[r.ID].first < 0 {
			c.v.Lost = append(c.v.Lost, r.ID)
		}
	}
}

// positions checks that the positions of each key's rows rise in commit order. Messages without one are passed over.
func (c *checking) positions() {
	keys := map[string][]*row{}
	for _, r := range c.rows {
		if r.first >= 0 && r.position != (outbox.Position{}) {
			keys[r.Key] = append(keys[r.Key], r)
		}
	}
	for _, rows := range keys {
		slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.Seq, b.Seq) })
		for i := 1; i < len(rows); i++ {
			if !rows[i-1].position.Less(rows[i].position) && !rows[i].moved {
				rows[i].moved = true
				c.v.Moved = append(c.v.Moved, rows[i].ID)
			}
		}
	}
}

// flushAhead applies the rule of Mark.
func (c *checking) flushAhead() {
	if len(c.h.Marks) == 0 {
		return
	}
	marks := slices.SortedFunc(slices.Values(c.h.Marks), func(a, b Mark) int { return cmp.Compare(a.After, b.After) })
	// For each partition the highest flush position among the marks before the event. They are taken in order: a log's end
	// only grows, and when its topic is made anew a mark too few is used, never one too many.
	type passed struct {
		marks int
		flush pglogrepl.LSN
	}
	logs := map[TopicPartition]*passed{}
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		log := logs[d.From]
		if log == nil {
			log = &passed{}
			logs[d.From] = log
		}
		for log.marks < len(marks) && marks[log.marks].After <= i && marks[log.marks].Ends[d.From] <= d.Offset {
			log.flush = max(log.flush, marks[log.marks].Flush)
			log.marks++
		}
		r := c.rows[d.ID]
		if r != nil && r.first == i && d.Position.Commit != 0 && d.Position.Commit < log.flush {
			c.v.FlushAheadOfDelivery = append(c.v.FlushAheadOfDelivery, d.ID)
		}
	}
}

// findings are the rules of a verdict that have no exception, and the rows that break them.
func (v Verdict) findings() []finding {
	return []finding{
		{"lost", v.Lost},
		{"phantom (never committed)", v.Phantom},
		{"out of order", v.OutOfOrder},
		{"altered", v.Altered},
		{"position moved", v.Moved},
		{"reported before delivery", v.FlushAheadOfDelivery},
	}
}

type finding struct {
	name string
	ids  []string
}

// Err is nil when every rule holds.
func (v Verdict) Err() error {
	var errs []error
	for _, f := range v.findings() {
		if len(f.ids) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d (%s)", f.name, len(f.ids), firstOf(f.ids)))
		}
	}
	if v.MaxDuplicates >= 0 && v.Duplicates > v.MaxDuplicates {
		errs = append(errs, fmt.Errorf("duplicates: %d, at most %d are allowed", v.Duplicates, v.MaxDuplicates))
	}
	return errors.Join(errs...)
}

// String is the verdict in a few lines.
func (v Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "committed %d, delivered %d, duplicates %d", v.Committed, v.Delivered, v.Duplicates)
	if v.MaxDuplicates >= 0 {
		fmt.Fprintf(&b, " (at most %d allowed)", v.MaxDuplicates)
	}
	fmt.Fprintf(&b, ", lost %d, out of order %d", len(v.Lost), len(v.OutOfOrder))
	if v.Redelivered > 0 {
		fmt.Fprintf(&b, ", sent again by the broker %d", v.Redelivered)
	}
	if err := v.Err(); err != nil {
		fmt.Fprintf(&b, "\n%v", err)
	}
	return b.String()
}

// firstOf names at most ten ids.
func firstOf(ids []string) string {
	const most = 10
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + ", …"
	}
	return strings.Join(ids, ", ")
}
