// The Store methods of the mirror.

package memorytest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

var _ dlq.MirrorStore = (*Store)(nil)

// Unmirrored implements dlq.MirrorStore.
func (m *Store) Unmirrored(ctx context.Context, after int64, limit int, size int64) (list []dlq.DeadLetterRow, err error) {
	end, err := m.lockMirror(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	deadLetters := m.db.entriesWhere(func(e *entry) bool {
		return m.isOurs(e) && e.state != "" && e.state != Purged && !e.redacted && e.mirrored.IsZero() && e.row.N > after
	})
	slices.SortFunc(deadLetters, func(a, b *entry) int { return cmp.Compare(a.row.N, b.row.N) })
	var taken int64
	for _, e := range deadLetters[:min(limit, len(deadLetters))] {
		if taken >= size {
			break
		}
		taken += int64(e.row.Event.Size() + len(e.row.Event.Raw))
		list = append(list, e.deadLetter())
	}
	return list, nil
}

// deadLetter returns a dead letter as a mirror reads it.
func (e *entry) deadLetter() dlq.DeadLetterRow {
	row := e.copyWith(nil)
	ev := &row.Event
	class, reason := store.RefusalColumns(row.Class, row.Reason)
	l := dlq.DeadLetterRow{
		N: row.N, Class: class, Reason: reason, Text: row.Text, Attempts: row.Attempts, Died: e.deadSince,
		Event: event.Event{
			Position: ev.Position, CommitTime: ev.CommitTime, Time: ev.Time, ID: ev.ID, Key: ev.Key, Aggregate: ev.Aggregate, Type: ev.Type,
			Payload: ev.Payload, PayloadKind: ev.PayloadKind, Raw: ev.Raw, Route: ev.Route,
		},
	}
	if !row.First.IsZero() {
		l.First = &row.First
	}
	if !row.Last.IsZero() {
		l.Last = &row.Last
	}
	return l
}

// NoteMirrored implements dlq.MirrorStore.
func (m *Store) NoteMirrored(ctx context.Context, ns []int64) error {
	end, err := m.lockMirror(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, e := range m.db.entriesWhere(m.isOurs) {
		if e.state != "" && e.mirrored.IsZero() && slices.Contains(ns, e.row.N) {
			e.mirrored = time.Now()
		}
	}
	return nil
}

// lockMirror is lockFenced with the error that a mirror expects of the fence.
func (m *Store) lockMirror(ctx context.Context) (end func(), err error) {
	end, err = m.lockFenced(ctx)
	if errors.Is(err, store.ErrFenced) {
		err = dlq.Fenced(m.cfg.Slot, m.cfg.Epoch)
	}
	return end, err
}
