// What the broker has of a run, against what the table has.
package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// history compares one run's messages, in the order of the queue or of each partition, with the
// rows of the table.
type history struct {
	first    int64    // id of the run's first event
	keys     []string // of the rows, in commit order
	payload  int      // bytes of theirs
	ordering string
	// some may come twice: RabbitMQ ends a channel over a bad event, and what was on its way there
	// is sent again
	repeats bool
	// another version made the messages: they may look otherwise
	anyShape bool

	seen      []bool
	delivered int
	lastOf    map[string]int // index of the newest event of each key
	newest    int
	twice     int
	unordered int
	foreign   int // an id or key that no row has
	altered   int // not the message that the event should be, but for time and position
}

// readTable reads the run's rows.
func (s *stand) readTable(ctx context.Context, first int64, l runSpec) (*history, error) {
	h := &history{first: first, payload: l.bytes(), ordering: l.ordering, lastOf: map[string]int{}, newest: -1}
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

// without leaves out rows that are not to come.
func (h *history) without(bad func(i int) bool) {
	for i := range h.keys {
		if bad(i) {
			h.seen[i] = true
			h.delivered++
		}
	}
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

// note takes the next message. It reports whether every row has come.
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

// verdict is an error unless the history is the table's, each row once and in order. left is what
// is still at the broker.
func (h *history) verdict(left int) error {
	lost, twice := len(h.keys)-h.delivered, h.twice
	if h.repeats {
		twice = 0
	}
	altered := h.altered
	if h.anyShape {
		altered = 0
	}
	if lost+twice+left+h.unordered+h.foreign+altered == 0 && len(h.keys) > 0 {
		return nil
	}
	return fmt.Errorf("history of %d rows: lost %d, delivered twice %d, left %d, out of order %d, unknown %d, altered %d",
		len(h.keys), lost, h.twice, left, h.unordered, h.foreign, h.altered)
}
