// Package checker compares what the database committed with what the broker has: nothing lost,
// nothing invented, nothing early, each key in order.
package checker

import (
	"cmp"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// History is what two outside witnesses have seen: the database (what was committed, and what the
// relay has put aside) and the broker (what arrived). The relay itself is not asked.
type History struct {
	Committed  []Row      // from ReadCommitted, after the last commit
	RolledBack []string   // from Workload.RolledBack
	Deliveries []Delivery // from Consumer.Deliveries, after Drain
	Marks      []Mark     // from Consumer.Marks; none: early reports are not looked for
	RetryTable []RetryRow // from ReadRetryTable, after Drain
	// from ReadStays, after ReadRetryTable; without them a mark takes what was deferred for lost
	Stays []Stay

	MaxDuplicates int  // duplicates allowed; -1: any number
	MaxDeferred   int  // rows that may be left in the retry table; -1: any number
	MaxDead       int  // dead letters that may be open; -1: any number
	NoKeyOrder    bool // ordering: none
	// an event may come again with another position: recovered, or sent by another server
	NewPositions bool
	// ordering: commit; first arrivals of all keys come in the order of their positions
	CommitOrder bool
	// on_dead_letter: block; nothing passes an open dead letter of its ordering group, and a
	// replayed one comes in its turn
	Block bool
	// a RabbitMQ was killed while messages were on their way to the consumer: what it gives out
	// again (Redelivered) has lost its place in the queue
	BrokerKilled bool
}

// Mark says that confirmed_flush_lsn was Flush at a moment before the first After deliveries had
// all arrived: it was read first, then the database's snapshot was taken, and then a message was
// put at the end of the queue, before which exactly these have come out of it. On Kafka the end
// offsets of all logs were read then: before the mark are also the records below them, whenever
// they arrive.
//
// The rule: an event whose commit record starts below Flush, and which arrived for the first time
// after the mark or never, and which by the snapshot was in neither table of the retry table, was
// nowhere when its position was reported; PostgreSQL would not have sent it again. A queue gives
// its messages out in the order in which it took them, so an event that was confirmed before the
// report stands before the mark, however slow the consumer is, and what was taken out of the retry
// table by then was confirmed before: there are no false alarms as long as every event is routed to
// this queue. An early report is seen when a sample falls between it and the event's arrival in the
// queue or table.
type Mark struct {
	Flush    pglogrepl.LSN
	Snapshot *Snapshot // nil: there was no retry table
	After    int
	Ends     map[kafkaserver.TopicPartition]int64 // Kafka
}

// Check compares the two.
func Check(h History) Verdict {
	c := checking{
		h: h, v: Verdict{Committed: len(h.Committed), MaxDuplicates: h.MaxDuplicates, MaxDeferred: h.MaxDeferred, MaxDead: h.MaxDead},
		rows: make(map[string]*row, len(h.Committed)), phantoms: map[string]bool{},
		last: map[groupIn]int64{}, highest: map[groupIn]event.Position{},
	}
	for _, r := range h.Committed {
		c.rows[r.ID] = &row{Row: r, first: -1}
	}
	c.retryTable()
	for i := range h.Deliveries {
		c.delivery(i)
	}
	c.settled()
	c.passedOpenDeadLetters()
	if !h.NewPositions {
		c.positions()
	}
	c.flushAhead()
	return c.v
}

func (c *checking) delivery(i int) {
	d := &c.h.Deliveries[i]
	r := c.rows[d.ID]
	if r == nil {
		c.phantom(d.ID)
		return
	}
	if !r.altered && (d.Key != "" && d.Key != r.Key || d.Aggregate != "" && r.Aggregate != "" && d.Aggregate != r.Aggregate || d.Seq != 0 && d.Seq != r.Seq) {
		r.altered = true
		c.v.Altered = append(c.v.Altered, d.ID)
	}
	if d.Replay && !r.wasDeadLetter() {
		c.v.Unasked = append(c.v.Unasked, d.ID)
	}
	r.plain = r.plain || !d.Replay
	if r.first >= 0 {
		c.again(r, d)
		return
	}
	r.first = i
	r.at(d.Position, c)
	c.v.Delivered++
	if d.Replay && !c.h.Block || c.displaced(d) {
		return // it comes when it was asked for, after whatever was released, or is given out again
	}
	exchangeOrTopic := groupIn{exchangeOrTopic: r.ExchangeOrTopic, from: d.From}
	group := groupIn{r.Aggregate, r.Key, r.ExchangeOrTopic, d.From}
	if r.Seq < c.last[group] && !c.h.NoKeyOrder || c.h.CommitOrder && d.Position.Less(c.highest[exchangeOrTopic]) {
		c.v.OutOfOrder = append(c.v.OutOfOrder, d.ID)
	}
	c.last[group] = max(c.last[group], r.Seq)
	if c.highest[exchangeOrTopic].Less(d.Position) {
		c.highest[exchangeOrTopic] = d.Position
	}
}

// displaced reports whether the delivery's place in the queue says nothing.
func (c *checking) displaced(d *Delivery) bool { return c.h.BrokerKilled && d.Redelivered }

// again is a delivery of a row that had arrived.
func (c *checking) again(r *row, d *Delivery) {
	if d.Redelivered {
		c.v.Redelivered++
	} else {
		c.v.Duplicates++
	}
	r.at(d.Position, c)
}

// positions checks that the positions of each key's rows rise in commit order.
func (c *checking) positions() {
	keys := map[string][]*row{}
	for _, r := range c.rows {
		if r.position != (event.Position{}) {
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
