// What the queue has of a run, against what the table has.
package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
)

// history compares one run's messages, in the order of the queue, with the rows of the table.
type history struct {
	first    int64    // id of the run's first event
	keys     []string // of the rows, in commit order
	ordering string

	seen      []bool
	delivered int
	lastOf    map[string]int // index of the newest event of each key
	newest    int
	twice     int
	unordered int
	foreign   int // an id or key that no row has
	altered   int // not the message that the bare publisher sends for that event, but for time and position
	want      bareMessage
}

// readTable reads the run's rows.
func (s *stand) readTable(ctx context.Context, first int64, ordering string) (*history, error) {
	h := &history{first: first, ordering: ordering, lastOf: map[string]int{}, newest: -1, want: newBareMessage()}
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT id::text, aggregateid FROM outbox ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	var id, key string
	names := map[string]string{} // one copy of each key
	_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
		i, ok := indexOf(id, first)
		if !ok || i != len(h.keys) {
			return fmt.Errorf("row %s is not the %d. of this run", id, len(h.keys))
		}
		if _, known := names[key]; !known {
			names[key] = key
		}
		h.keys = append(h.keys, names[key])
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	h.seen = make([]bool, len(h.keys))
	return h, nil
}

// indexOf is the place of an id in the run whose first id is first.
func indexOf(id string, first int64) (int, bool) {
	const digits = len("00000000-0000-0000-0000-000000000000")
	if len(id) != digits {
		return 0, false
	}
	n, err := strconv.ParseInt(id[19:23]+id[24:], 16, 64) // the last 64 bits
	return int(n - first), err == nil && n >= first && n-first < 1<<32
}

// note takes the next message of the queue. It reports whether every row has come.
func (h *history) note(id, key string) (all bool) {
	i, ok := indexOf(id, h.first)
	if !ok || i >= len(h.keys) || h.keys[i] != key {
		h.foreign++
		return false
	}
	if h.seen[i] {
		h.twice++
		return false
	}
	h.seen[i] = true
	h.delivered++
	if last, known := h.lastOf[key]; known && last > i || h.ordering == "commit" && h.newest > i {
		h.unordered++
	}
	h.lastOf[h.keys[i]], h.newest = i, i
	return h.delivered == len(h.keys)
}

// take notes a delivery, and holds it against what the baseline sends: both must have had the same work.
func (h *history) take(d *amqp.Delivery) bool {
	key := text(d.Headers["aggregate_id"])
	if i, ok := indexOf(d.MessageId, h.first); ok && !sameShape(d, h.want.build(h.first, i, key)) {
		h.altered++
	}
	return h.note(d.MessageId, key)
}

func sameShape(d *amqp.Delivery, want *amqp.Publishing) bool {
	return bytes.Equal(d.Body, want.Body) && d.ContentType == want.ContentType && d.DeliveryMode == want.DeliveryMode &&
		d.Type == want.Type && d.Timestamp.IsZero() == want.Timestamp.IsZero() && len(d.Headers) == len(want.Headers) &&
		d.Headers["aggregate_type"] == want.Headers["aggregate_type"] && d.Headers["timestamp_in_ms"] != nil &&
		len(text(d.Headers["cdc_position"])) == len(text(want.Headers["cdc_position"]))
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// verdict is an error unless the history is the table's, each row once and in order. left is what is still in the queue.
func (h *history) verdict(left int) error {
	lost := len(h.keys) - h.delivered
	if lost+h.twice+left+h.unordered+h.foreign+h.altered == 0 && len(h.keys) > 0 {
		return nil
	}
	return fmt.Errorf("history of %d rows: lost %d, delivered twice %d, left in the queue %d, out of order %d, unknown %d, altered %d",
		len(h.keys), lost, h.twice, left, h.unordered, h.foreign, h.altered)
}

// checkHistory reads the queue empty and compares.
func (s *stand) checkHistory(ctx context.Context, q *queue, first int64, ordering string) error {
	h, err := s.readTable(ctx, first, ordering)
	if err != nil {
		return err
	}
	before, err := q.depth()
	if err != nil {
		return err
	}
	taken := 0
	err = q.consume(ctx, func(d *amqp.Delivery) bool {
		h.take(d)
		taken++
		return taken == before
	})
	if err != nil {
		return err
	}
	left, err := q.depth()
	if err != nil {
		return err
	}
	return h.verdict(left)
}
