// Cutting ordering groups over, seen from outside: of a busy key a few rows are in the table
// still, and the events that were committed since are in memory. On RabbitMQ: to Kafka the rows of
// a key go in one request, so that a cut-over has ended before it can be seen; there the relay is
// met when few rows are left.

package stand

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// slow is how long a message, and its confirm, are on their way during a cut-over: so it lasts, row
// by row.
const slow = 50 * time.Millisecond

// beginCutOver defers some rows of each of a few keys that are busy all the time: fewer than an
// ordering group may have to be cut over, also when it takes the relay ten seconds to see that the
// destination is back; and fewer come than go, slow as it is.
func (c *crash) beginCutOver() {
	c.T.Helper()
	c.Keys = 5
	c.Kinds = []load.Kind{c.ToLater(0.5, 0)}
	c.flow()
	if c.Kafka != nil {
		c.AwaitRows(checker.Deferred, 300)
		return
	}
	c.AwaitRows(checker.Deferred, 100)
	c.stop()
	c.stop = c.Load(20)
	c.Broker.Delay(slow)
}

// cutOver waits until a cut-over is under way, and then until the seed says.
func (c *crash) cutOver() {
	c.T.Helper()
	if c.Kafka != nil {
		few := c.random.IntN(100)
		c.Until(fmt.Sprintf("at most %d rows to be deferred", few), func() bool { return c.RowsIn(checker.Deferred) <= few })
		return
	}
	c.Until("a key with rows in the table whose new events are kept in memory", func() bool {
		before := c.look()
		c.Until("events that were committed since to arrive", func() bool { return c.arrivedBeside(before.committed) >= 5 })
		after := c.look()
		for id := range before.kept {
			if after.kept[id] {
				return true
			}
		}
		return false
	})
	c.More(1 + c.random.IntN(20))
}

// looked is what was seen at a moment.
type looked struct {
	committed map[string]bool // all ids
	// those neither arrived nor deferred, with a deferred one of their key that has not arrived
	kept map[string]bool
}

func (c *crash) look() looked {
	c.T.Helper()
	type event struct {
		id, key  string
		deferred bool
	}
	var all []event
	c.onDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT o.id::text, aggregateid || ' ' || o.destination, r.n IS NOT NULL
			FROM outbox o LEFT JOIN cdc_relay.retry r ON convert_from(r.id, 'UTF8') = o.id::text`)
		if err != nil {
			return fmt.Errorf("read outbox: %w", err)
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e event, err error) {
			return e, row.Scan(&e.id, &e.key, &e.deferred)
		})
		return err
	})
	arrived, held := c.arrived(), map[string]bool{}
	for _, e := range all {
		held[e.key] = held[e.key] || e.deferred && !arrived[e.id]
	}
	l := looked{committed: map[string]bool{}, kept: map[string]bool{}}
	for _, e := range all {
		l.committed[e.id] = true
		if held[e.key] && !e.deferred && !arrived[e.id] {
			l.kept[e.id] = true
		}
	}
	return l
}

func (c *crash) arrived() map[string]bool {
	ids := map[string]bool{}
	for _, d := range c.Consumer.Deliveries() {
		ids[d.ID] = true
	}
	return ids
}

// arrivedBeside is how many have arrived that are not among these.
func (c *crash) arrivedBeside(ids map[string]bool) (n int) {
	for id := range c.arrived() {
		if !ids[id] {
			n++
		}
	}
	return n
}
