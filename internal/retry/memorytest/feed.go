// The Store methods that find rows for the lanes, and Apply.

package memorytest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Read implements Store.
func (m *Store) Read(ctx context.Context, wants []store.Want, run int, size, acked int64) (runs []store.Run, err error) {
	end, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	rows := map[uint64][]*kept{}
	for _, e := range m.db.list(m.deferred) {
		rows[e.row.Group] = append(rows[e.row.Group], e)
	}
	blocked := map[uint64]bool{}
	for _, e := range m.db.list(m.blocks) {
		blocked[e.row.Group] = true
	}
	behind := make([][]*kept, len(wants))
	for w, want := range wants {
		runs = append(runs, store.Run{Group: want.Group, Blocked: blocked[want.Group]})
		if !blocked[want.Group] {
			behind[w] = slices.DeleteFunc(slices.Clone(rows[want.Group]), func(e *kept) bool {
				return cmp.Or(cmp.Compare(e.incarnation, want.After.Incarnation), e.position.Compare(want.After.Position)) <= 0
			})
		}
	}
	m.fill(runs, behind, run, size, acked)
	for r := range runs {
		runs[r].More = len(behind[r]) > len(runs[r].Rows)
	}
	return runs, nil
}

// fill gives the runs their rows: each first row before any second.
func (m *Store) fill(runs []store.Run, behind [][]*kept, run int, size, acked int64) {
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
			runs[r].Rows = append(runs[r].Rows, of[i].read(m.c.Columns))
		}
	}
}

// cursor is where an entry stands in the order of Sweep.
func (e *kept) cursor() store.Cursor {
	return store.Cursor{ExchangeOrTopic: e.row.ExchangeOrTopic, Dest: e.row.Dest, Incarnation: e.incarnation, Position: e.position}
}

// compare orders digests as the database does: as signed numbers.
func compareCursors(c, d store.Cursor) int {
	return cmp.Or(compareDest(c, d), cmp.Compare(c.Incarnation, d.Incarnation), c.Position.Compare(d.Position))
}

func compareDest(c, d store.Cursor) int {
	return cmp.Or(cmp.Compare(int64(c.ExchangeOrTopic), int64(d.ExchangeOrTopic)), cmp.Compare(int64(c.Dest), int64(d.Dest)))
}

// swept are our deferred rows in the order of Sweep.
func (m *Store) swept() []*kept {
	list := m.db.list(m.deferred)
	slices.SortFunc(list, func(a, b *kept) int { return compareCursors(a.cursor(), b.cursor()) })
	return list
}

// Sweep implements Store.
func (m *Store) Sweep(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	end, err := m.begin(ctx)
	if err != nil {
		return nil, at, err
	}
	defer end()
	next = at
	for _, e := range m.swept() {
		if compareDest(e.cursor(), at) != 0 || compareCursors(e.cursor(), at) <= 0 || limit == 0 {
			continue
		}
		limit--
		next = e.cursor()
		if !slices.Contains(groups, e.row.Group) {
			groups = append(groups, e.row.Group)
		}
	}
	return groups, next, nil
}

// Resent implements Store.
func (m *Store) Resent(ctx context.Context, after store.ResentRow, limit int) (groups []uint64, last store.ResentRow, some bool, err error) {
	end, err := m.begin(ctx)
	if err != nil {
		return nil, after, false, err
	}
	defer end()
	var list []store.ResentRow
	of := map[store.ResentRow]uint64{}
	for _, e := range m.swept() {
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

// Skip implements Store.
func (m *Store) Skip(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	end, err := m.begin(ctx)
	if err != nil {
		return store.Cursor{}, false, err
	}
	defer end()
	for _, e := range m.swept() {
		if compareDest(e.cursor(), at) > 0 {
			return store.Cursor{ExchangeOrTopic: e.row.ExchangeOrTopic, Dest: e.row.Dest}, true, nil
		}
	}
	return store.Cursor{}, false, nil
}

// Apply implements Store.
func (m *Store) Apply(ctx context.Context, results []store.Result) error {
	end, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range results {
		r := &results[i]
		e := m.at(r.Row, false)
		if e == nil {
			continue
		}
		switch r.Kind {
		case store.Delivered:
			delete(m.db.rows, e.place)
		case store.Backoff:
			e.noteRejection(r)
			e.row.NextAttempt = time.Time{}
			if r.After > 0 {
				e.row.NextAttempt = time.Now().Add(r.After)
			}
		case store.Dead:
			e.noteRejection(r)
			e.die()
		}
	}
	return nil
}

// noteRejection records a rejection.
func (e *kept) noteRejection(r *store.Result) {
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
