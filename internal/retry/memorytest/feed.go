// The Store methods that find rows: for the lanes, with ApplyResults, and for a new leader.
// ReclaimSpace has nothing to do.

package memorytest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// ReadRows implements Store.
func (m *Store) ReadRows(ctx context.Context, wants []store.Want, run int, size, acked int64) (runs []store.RowRun, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	rows := map[uint64][]*entry{}
	for _, want := range wants {
		rows[want.Group] = nil
	}
	wanted := func(e *entry) bool { _, wanted := rows[e.row.Group]; return wanted && m.isDeferred(e) }
	for _, e := range m.db.entriesWhere(wanted) {
		rows[e.row.Group] = append(rows[e.row.Group], e)
	}
	blocked := map[uint64]bool{}
	for _, e := range m.db.entriesWhere(m.isBlocking) {
		blocked[e.row.Group] = true
	}
	behind := make([][]*entry, len(wants))
	for w, want := range wants {
		runs = append(runs, store.RowRun{Group: want.Group, Blocked: blocked[want.Group]})
		if !blocked[want.Group] {
			behind[w] = slices.DeleteFunc(slices.Clone(rows[want.Group]), func(e *entry) bool {
				return cmp.Or(cmp.Compare(e.incarnation, want.After.Incarnation), e.position.Compare(want.After.Position)) <= 0
			})
		}
	}
	m.fillRuns(runs, behind, run, size, acked)
	for r := range runs {
		runs[r].More = len(behind[r]) > len(runs[r].Rows)
	}
	return runs, nil
}

// fillRuns gives the runs their rows: each first row before any second.
func (m *Store) fillRuns(runs []store.RowRun, behind [][]*entry, run int, size, acked int64) {
	var taken int64
	for i := range run {
		for r := range runs {
			of := behind[r]
			if i >= len(of) || len(runs[r].Rows) < i || of[i].row.N > acked {
				continue
			}
			if taken > 0 && taken >= size {
				return
			}
			taken += int64(of[i].row.Event.Size() + len(of[i].row.Event.Raw))
			runs[r].Rows = append(runs[r].Rows, of[i].copyWith(m.cfg.Columns))
		}
	}
}

// cursor is where an entry stands in the order of GroupsOfDestination.
func (e *entry) cursor() store.Cursor {
	return store.Cursor{ExchangeOrTopic: e.row.ExchangeOrTopic, Dest: e.row.Dest, Incarnation: e.incarnation, Position: e.position}
}

// compareCursors orders digests as the database does: as signed numbers.
func compareCursors(c, d store.Cursor) int {
	return cmp.Or(compareDest(c, d), cmp.Compare(c.Incarnation, d.Incarnation), c.Position.Compare(d.Position))
}

func compareDest(c, d store.Cursor) int {
	return cmp.Or(cmp.Compare(int64(c.ExchangeOrTopic), int64(d.ExchangeOrTopic)), cmp.Compare(int64(c.Dest), int64(d.Dest)))
}

// inSweepOrder are our deferred rows in the order of GroupsOfDestination.
func (m *Store) inSweepOrder() []*entry {
	list := m.db.entriesWhere(m.isDeferred)
	slices.SortFunc(list, func(a, b *entry) int { return compareCursors(a.cursor(), b.cursor()) })
	return list
}

// GroupsOfDestination implements Store.
func (m *Store) GroupsOfDestination(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return nil, at, err
	}
	defer end()
	next = at
	of := func(e *entry) bool {
		return m.isDeferred(e) && compareDest(e.cursor(), at) == 0 && compareCursors(e.cursor(), at) > 0
	}
	seen := map[uint64]bool{}
	for _, e := range m.db.entriesWhere(of) {
		if limit == 0 {
			break
		}
		limit--
		next = e.cursor()
		if !seen[e.row.Group] {
			seen[e.row.Group], groups = true, append(groups, e.row.Group)
		}
	}
	return groups, next, nil
}

// GroupsOfResends implements Store.
func (m *Store) GroupsOfResends(ctx context.Context, after store.ResentRow, limit int) (groups []uint64, last store.ResentRow, some bool, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return nil, after, false, err
	}
	defer end()
	var list []store.ResentRow
	of := map[store.ResentRow]uint64{}
	for _, e := range m.db.entriesWhere(m.isDeferred) {
		if e.row.Resend == 0 {
			continue
		}
		some = true
		if at := (store.ResentRow{Job: e.row.Resend, N: e.row.N}); compareResent(at, after) > 0 && !e.row.NextAttempt.After(time.Now()) {
			list, of[at] = append(list, at), e.row.Group
		}
	}
	slices.SortFunc(list, compareResent)
	last = after
	for _, at := range list[:min(len(list), limit)] {
		if last = at; !slices.Contains(groups, of[at]) {
			groups = append(groups, of[at])
		}
	}
	return groups, last, some, nil
}

func compareResent(a, b store.ResentRow) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.N, b.N))
}

// NextDestination implements Store.
func (m *Store) NextDestination(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return store.Cursor{}, false, err
	}
	defer end()
	for _, e := range m.inSweepOrder() {
		if compareDest(e.cursor(), at) > 0 {
			return store.Cursor{ExchangeOrTopic: e.row.ExchangeOrTopic, Dest: e.row.Dest}, true, nil
		}
	}
	return store.Cursor{}, false, nil
}

// ApplyResults implements Store.
func (m *Store) ApplyResults(ctx context.Context, results []store.Result) error {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range results {
		r := &results[i]
		e := m.entryOf(r.Row, false)
		if e == nil {
			continue
		}
		switch r.Kind {
		case store.Delivered:
			m.db.remove(e)
		case store.Backoff:
			e.noteRejection(r)
			e.row.NextAttempt = time.Time{}
			if r.After > 0 {
				e.row.NextAttempt = time.Now().Add(r.After)
			}
		case store.Dead:
			e.noteRejection(r)
			e.makeDeadLetter()
		}
	}
	return nil
}

func (e *entry) noteRejection(r *store.Result) {
	if r.Reason == "" {
		return
	}
	now := time.Now().UTC()
	if e.row.First.IsZero() || e.row.Attempts == 0 && r.Attempts > 0 {
		e.row.First = now
	}
	e.row.Class, e.row.Reason, e.row.Attempts, e.row.Last = r.Class, r.Reason, r.Attempts, now
	e.row.Text, e.row.Destination = store.NormalText(r.Text), store.BoundedText(r.Destination, store.TextSize)
}

// RegroupRows implements Store.
func (m *Store) RegroupRows(ctx context.Context) (highest event.Position, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return highest, err
	}
	defer end()
	for _, e := range m.db.entriesWhere(m.isOurs) {
		if e.incarnation == m.cfg.Incarnation {
			highest = e.position
		}
		if e.state == "" || e.state == Open {
			e.row.Group, e.row.Ordered = m.cfg.Scope.Group(&e.row.Event, e.row.ExchangeOrTopic)
		}
	}
	return highest, nil
}

// ExchangesWithRows implements Store.
func (m *Store) ExchangesWithRows(ctx context.Context) (list []uint64, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, e := range m.db.entriesWhere(func(e *entry) bool { return m.isDeferred(e) || m.isBlocking(e) }) {
		list = append(list, e.row.ExchangeOrTopic)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// MissingExchanges implements Store.
func (m *Store) MissingExchanges(ctx context.Context) (list []store.MissingExchange, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	seen := map[uint64]bool{}
	for _, e := range m.db.entriesWhere(m.isDeferred) {
		if r := e.row; r.Reason == sink.NoExchange && !seen[r.ExchangeOrTopic] {
			seen[r.ExchangeOrTopic] = true
			list = append(list, store.MissingExchange{ExchangeOrTopic: r.ExchangeOrTopic, Destination: r.Destination, Text: r.Text})
		}
	}
	return list, nil
}

// ReclaimSpace implements Store.
func (m *Store) ReclaimSpace(ctx context.Context) (store.Reclaimed, error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	return store.ReclaimNothing, nil
}
