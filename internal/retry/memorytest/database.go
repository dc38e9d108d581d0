// Package memorytest is the store in memory, for tests and the simulation: the same rules as
// PostgreSQL's, without a disk. One conformance suite holds for both (internal/retry/postgres).
package memorytest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Database is what the stores of several leaders share: the tables, and the epoch. It stands in for
// PostgreSQL in tests: same rules, no goroutines, and no clock but time.Now.
type Database struct {
	mu       sync.Mutex
	epoch    map[string]int64
	saved    map[string]pglogrepl.LSN
	number   int64
	rows     map[entryKey]*entry // a position is in retry or in dead_letter
	ordered  []*entry            // of rows, in order of position
	requests []*Request
	audit    []AuditNote
}

// entryKey is the primary key of both tables.
type entryKey struct {
	slot, system string
	incarnation  int64
	position     event.Position
}

func (p entryKey) compare(q entryKey) int {
	return cmp.Or(cmp.Compare(p.incarnation, q.incarnation), p.position.Compare(q.position))
}

// State is the state of a dead letter.
type State string

// The states of dead letters.
const (
	Open      State = "open"
	Replayed  State = "replayed"
	Discarded State = "discarded"
	Purged    State = "purged"
)

// entry is a row of one of the tables: of dead_letter when it has a state.
type entry struct {
	entryKey
	row       store.Row
	columns   []string // names of row.Event.Columns
	state     State
	deadSince time.Time
	closed    time.Time
	mirrored  time.Time
	redacted  bool
}

// NewDatabase makes an empty one.
func NewDatabase() *Database {
	return &Database{epoch: map[string]int64{}, saved: map[string]pglogrepl.LSN{}, number: 1, rows: map[entryKey]*entry{}}
}

// RaiseEpoch raises the slot's epoch and returns it: stores of an earlier epoch are fenced.
func (db *Database) RaiseEpoch(slot string) int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.epoch[slot]++
	return db.epoch[slot]
}

// SavePosition records that the slot, even after a crash, sends no transaction whose commit is
// below at.
func (db *Database) SavePosition(slot string, at pglogrepl.LSN) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.saved[slot] = at
}

// Store is the store of one leader.
func (db *Database) Store(c store.Config) *Store { return &Store{db: db, cfg: c} }

// DeadLetterRow is what a checker sees of a dead letter.
type DeadLetterRow struct {
	Row      *store.Row
	State    State
	Redacted bool
	Mirrored bool
}

// Deferred lists the rows of retry of a slot, in order of position.
func (db *Database) Deferred(slot string) []*store.Row {
	db.mu.Lock()
	defer db.mu.Unlock()
	var list []*store.Row
	for _, e := range db.entriesWhere(func(e *entry) bool { return e.slot == slot && e.state == "" }) {
		list = append(list, e.copyWith(e.columns))
	}
	return list
}

// DeadLetters lists the dead letters of a slot, in order of position.
func (db *Database) DeadLetters(slot string) []DeadLetterRow {
	db.mu.Lock()
	defer db.mu.Unlock()
	var list []DeadLetterRow
	for _, e := range db.entriesWhere(func(e *entry) bool { return e.slot == slot && e.state != "" }) {
		list = append(list, DeadLetterRow{e.copyWith(e.columns), e.state, e.redacted, !e.mirrored.IsZero()})
	}
	return list
}

// StateOf returns where the row of a number is: "deferred", the state of its dead letter, or "" if
// it is nowhere.
func (db *Database) StateOf(n int64) string {
	db.mu.Lock()
	defer db.mu.Unlock()
	list := db.entriesWhere(func(e *entry) bool { return e.row.N == n })
	switch {
	case len(list) == 0:
		return ""
	case list[0].state == "":
		return "deferred"
	}
	return string(list[0].state)
}

// entriesWhere returns the entries of that kind in order of position.
func (db *Database) entriesWhere(of func(*entry) bool) []*entry {
	var list []*entry
	for _, e := range db.ordered {
		if of(e) {
			list = append(list, e)
		}
	}
	return list
}

func (db *Database) insert(fresh map[entryKey]*entry) {
	maps.Copy(db.rows, fresh)
	db.ordered = slices.AppendSeq(db.ordered, maps.Values(fresh))
	slices.SortFunc(db.ordered, func(a, b *entry) int { return a.compare(b.entryKey) })
}

func (db *Database) remove(e *entry) {
	delete(db.rows, e.entryKey)
	at, _ := slices.BinarySearchFunc(db.ordered, e, func(a, b *entry) int { return a.compare(b.entryKey) })
	at += slices.Index(db.ordered[at:], e)
	db.ordered = slices.Delete(db.ordered, at, at+1)
}

// Store is a store in memory. It may be used by several goroutines.
type Store struct {
	db  *Database
	cfg store.Config
}

var _ store.Store = (*Store)(nil)

// lockFenced locks the database and checks the fence; end unlocks the database.
func (m *Store) lockFenced(ctx context.Context) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.db.mu.Lock()
	if m.db.epoch[m.cfg.Slot] != m.cfg.Epoch {
		m.db.mu.Unlock()
		return nil, store.ErrFenced
	}
	return m.db.mu.Unlock, nil
}

func (m *Store) isOurs(e *entry) bool     { return e.slot == m.cfg.Slot && e.system == m.cfg.SystemID }
func (m *Store) isDeferred(e *entry) bool { return m.isOurs(e) && e.state == "" }

// isBlocking reports whether a row is a dead letter that blocks its ordering group.
func (m *Store) isBlocking(e *entry) bool {
	return m.cfg.Block && m.isOurs(e) && e.state == Open && e.row.Ordered
}

// entryOf returns the entry that a row names by position and number; nil when it no longer exists.
func (m *Store) entryOf(row *store.Row, deadLetter bool) *entry {
	e := m.db.rows[entryKey{m.cfg.Slot, m.cfg.SystemID, row.Incarnation, row.Event.Position}]
	if e == nil || e.row.N != row.N || (e.state != "") != deadLetter {
		return nil
	}
	return e
}

// LeaseNumbers implements Store.
func (m *Store) LeaseNumbers(ctx context.Context) (int64, error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	first := m.db.number
	m.db.number += store.LeaseSize
	return first, nil
}

// Defer implements Store.
func (m *Store) Defer(ctx context.Context, rows []*store.Row) error {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return err
	}
	defer end()
	fresh := map[entryKey]*entry{}
	for _, row := range rows {
		at := entryKey{m.cfg.Slot, m.cfg.SystemID, row.Incarnation, row.Event.Position}
		there := cmp.Or(m.db.rows[at], fresh[at])
		if there == nil {
			fresh[at] = m.newEntry(at, row)
			continue
		}
		if of := there.ownedPosition(); !of.Matches(&row.Event) {
			return store.PositionTaken(row)
		}
	}
	m.db.insert(fresh)
	return nil
}

// newEntry returns the row as it is kept.
func (m *Store) newEntry(at entryKey, row *store.Row) *entry {
	e := &entry{entryKey: at, row: *row, columns: m.cfg.Columns}
	e.row.Event = cloneEvent(&row.Event)
	e.row.DeferredAt, e.row.First, e.row.Last = time.Now(), row.First.UTC(), row.Last.UTC()
	e.row.Text, e.row.Destination = store.NormalText(row.Text), store.BoundedText(row.Destination, store.TextSize)
	if row.Reason == "" {
		e.row.Class = sink.Destination
	}
	if row.Dead {
		e.makeDeadLetter()
	}
	return e
}

// copyWith returns a copy for the caller, with the columns of these names.
func (e *entry) copyWith(names []string) *store.Row {
	row := e.row
	row.Event = cloneEvent(&e.row.Event)
	if row.Bytes = int64(row.Event.Size() + len(row.Event.Raw)); row.Event.LeftOut != nil {
		row.Bytes = row.Event.LeftOut.Bytes
	}
	row.Event.Columns = nil
	for _, name := range names {
		var value []byte
		if i := slices.Index(e.columns, name); i >= 0 && i < len(e.row.Event.Columns) {
			value = bytes.Clone(e.row.Event.Columns[i])
		}
		row.Event.Columns = append(row.Event.Columns, value)
	}
	return &row
}

func cloneEvent(ev *event.Event) event.Event {
	c := *ev
	for _, b := range []*[]byte{&c.ID, &c.Aggregate, &c.Key, &c.Type, &c.Payload, &c.Traceparent, &c.Headers, &c.Raw} {
		*b = bytes.Clone(*b)
	}
	c.Columns = slices.Clone(ev.Columns)
	for i, b := range c.Columns {
		c.Columns[i] = bytes.Clone(b)
	}
	c.Route = &event.Route{}
	if ev.Route != nil {
		c.Route = &event.Route{Name: bytes.Clone(ev.Route.Name), RoutingKey: bytes.Clone(ev.Route.RoutingKey)}
	}
	c.Replay = false
	return c
}

// PositionsFrom implements Store.
func (m *Store) PositionsFrom(ctx context.Context, from event.Position, limit int) (list []store.StoredPosition, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, e := range m.db.entriesWhere(m.isOurs) {
		if e.incarnation == m.cfg.Incarnation && !e.position.Less(from) && len(list) < limit {
			list = append(list, e.ownedPosition())
		}
	}
	return list, nil
}

func (e *entry) ownedPosition() store.StoredPosition {
	ev := &e.row.Event
	o := store.StoredPosition{Position: e.position, Purged: e.state == Purged, LeftOut: ev.ID == nil && ev.LeftOut != nil, Committed: ev.CommitTime.UnixMicro()}
	if id := ev.ID; id != nil && !o.Purged {
		digest := sha256.Sum256(id)
		o.ID = digest[:]
	}
	return o
}

// makeDeadLetter makes a row a dead letter.
func (e *entry) makeDeadLetter() {
	e.state, e.deadSince, e.row.Dead, e.row.NextAttempt = Open, time.Now(), true, time.Time{}
}
