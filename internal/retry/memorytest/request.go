// Requests and answers.

package memorytest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Request is a row of request.
type Request struct {
	ID           int64
	Slot, System string
	Kind         store.RequestKind
	N            int64
	Route        event.Route
	Who, Why     string
	State        string // waiting, done, failed, cancelled
	Result       string
	begun        int64 // epoch
	doneAt       time.Time
}

// AuditNote is a row of audit.
type AuditNote struct {
	Who, Why, Action, Result string
	N                        int64
	Position                 event.Position
	Request                  int64
}

// AddRequest stores a request and returns its ID; 0: a request about the same row waits already.
func (db *Database) AddRequest(q Request) (id int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, other := range db.requests {
		if other.N == q.N && other.State == "waiting" {
			return 0
		}
	}
	q.ID, q.State = 1, "waiting"
	if len(db.requests) > 0 {
		q.ID = db.requests[len(db.requests)-1].ID + 1
	}
	db.requests = append(db.requests, &q)
	return q.ID
}

// Cancel cancels a waiting request.
func (db *Database) Cancel(id int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if q := db.requestWithID(id); q != nil && q.State == "waiting" {
		q.State, q.doneAt = "cancelled", time.Now()
	}
}

// RequestByID returns the request with that ID, and whether there is one.
func (db *Database) RequestByID(id int64) (Request, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if q := db.requestWithID(id); q != nil {
		return *q, true
	}
	return Request{}, false
}

// Audit lists what was done to events by request.
func (db *Database) Audit() []AuditNote {
	db.mu.Lock()
	defer db.mu.Unlock()
	return append([]AuditNote(nil), db.audit...)
}

func (db *Database) requestWithID(id int64) *Request {
	for _, q := range db.requests {
		if q.ID == id {
			return q
		}
	}
	return nil
}

// allows reports whether the state of a row allows this kind of request; dead letters have a state,
// deferred rows none.
func (e *entry) allows(kind store.RequestKind) bool {
	switch kind {
	case store.Replay:
		return e.state == Open && !e.redacted
	case store.Discard:
		return e.state == Open
	case store.Redact:
		return e.state != "" && e.state != Purged
	case store.Retry, store.DeadLetter:
		return e.state == ""
	default: // Purge
		return e.state != Purged
	}
}

// WaitingRequests implements Store.
func (m *Store) WaitingRequests(ctx context.Context, limit int, size int64) (list []store.Request, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if len(m.db.requests) == 0 {
		return nil, nil
	}
	rows := map[int64]*entry{}
	for _, e := range m.db.entriesWhere(m.isOurs) {
		rows[e.row.N] = e
	}
	var taken int64
	last := map[store.RequestKind]int{store.Replay: 1}
	asked := slices.Clone(m.db.requests)
	slices.SortStableFunc(asked, func(a, b *Request) int { return last[a.Kind] - last[b.Kind] })
	for _, q := range asked {
		if q.Slot != m.cfg.Slot || q.System != m.cfg.SystemID || q.State != "waiting" {
			continue
		}
		if len(list) == limit || taken > 0 && taken >= size {
			break
		}
		r := store.Request{ID: q.ID, Kind: q.Kind, Route: q.Route, Begun: q.begun}
		if e := rows[q.N]; e != nil && e.allows(q.Kind) {
			r.Row = e.copyWith(m.cfg.Columns)
			if q.Kind == store.Replay && size > 0 {
				taken += int64(e.row.Event.Size() + len(e.row.Event.Raw))
			} else {
				ev := &r.Row.Event
				ev.Payload, ev.Headers, ev.Columns, ev.Raw = nil, nil, nil, nil
			}
		}
		list = append(list, r)
	}
	return list, nil
}

// BeginReplay implements Store.
func (m *Store) BeginReplay(ctx context.Context, request int64) error {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return err
	}
	defer end()
	if q := m.db.requestWithID(request); q != nil && q.State == "waiting" && q.Slot == m.cfg.Slot && q.System == m.cfg.SystemID {
		q.begun = m.cfg.Epoch
	}
	return nil
}

// AnswerRequests implements Store.
func (m *Store) AnswerRequests(ctx context.Context, answers []store.Answer) ([]bool, error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return make([]bool, len(answers)), err
	}
	defer end()
	done := make([]bool, len(answers))
	for i := range answers {
		a := &answers[i]
		q, v := m.db.requestWithID(a.Request.ID), a.Verdict()
		if q == nil || v == store.VerdictWaits || q.State != "waiting" && !(q.State == "cancelled" && v == store.VerdictReplayed) {
			done[i] = q != nil && q.State == "done"
			continue
		}
		done[i], q.Result = m.carryOut(a, v)
		q.State, q.doneAt = "failed", time.Now()
		if done[i] {
			q.State = "done"
		}
		note := AuditNote{Who: q.Who, Why: q.Why, Action: string(q.Kind), Result: q.Result, N: q.N, Request: q.ID}
		if v == store.VerdictRefused {
			note.Result = string(a.Result().Reason)
		}
		if a.Request.Row != nil {
			note.Position = a.Request.Row.Event.Position
		}
		m.db.audit = append(m.db.audit, note)
	}
	return done, nil
}

// carryOut carries out a request and returns whether it took place, and the result's text.
func (m *Store) carryOut(a *store.Answer, v store.Verdict) (done bool, result string) {
	if v == store.VerdictMissing {
		return false, store.NotAllowed
	}
	kind := a.Request.Kind
	e := m.entryOf(a.Request.Row, true)
	if e == nil {
		e = m.entryOf(a.Request.Row, false)
	}
	switch {
	case e == nil || v == store.VerdictCarryOut && !e.allows(kind) || v != store.VerdictCarryOut && e.state != Open:
		if v == store.VerdictRefused {
			return false, store.RefusalText(a)
		}
		return false, store.NotAllowed
	case v == store.VerdictRefused:
		r := a.Result()
		e.noteRejection(&r)
		return false, store.RefusalText(a)
	case v == store.VerdictReplayed:
		e.state, e.closed = Replayed, time.Now()
		return true, string(Replayed)
	}
	switch kind {
	case store.Discard:
		e.state, e.closed = Discarded, time.Now()
		return true, string(Discarded)
	case store.Redact:
		ev := &e.row.Event
		ev.Payload, ev.Headers, ev.Columns, ev.Raw, ev.Traceparent = nil, nil, nil, nil, nil
		e.redacted = true
		m.db.clearRequestsAbout(e.row.N, false)
		return true, "redacted"
	case store.Purge:
		e.purge()
		m.db.clearRequestsAbout(e.row.N, true)
		return true, string(Purged)
	case store.DeadLetter:
		e.makeDeadLetter()
		return true, "dead letter"
	default: // Retry
		heads := m.db.entriesWhere(func(head *entry) bool { return m.isDeferred(head) && head.row.Group == e.row.Group })
		heads[0].row.NextAttempt = time.Now()
		return true, "is tried"
	}
}

// clearRequestsAbout removes from the requests about a row what the broker said, and of a purged
// one the destinations, too.
func (db *Database) clearRequestsAbout(n int64, purged bool) {
	for _, q := range db.requests {
		if q.N != n || q.State == "waiting" {
			continue
		}
		if purged {
			q.Route = event.Route{}
		}
		if q.State == "failed" {
			q.Result = store.TextPurged
		}
	}
}

// purge removes everything but the position.
func (e *entry) purge() {
	ev := &e.row.Event
	if e.state == "" || e.state == Open {
		e.closed = time.Now()
	}
	e.state = Purged
	e.row = store.Row{
		N: e.row.N, Incarnation: e.row.Incarnation, Dead: true, Class: e.row.Class, Reason: e.row.Reason,
		Attempts: e.row.Attempts, First: e.row.First, Last: e.row.Last, DeferredAt: e.row.DeferredAt,
		Event: event.Event{Position: ev.Position, CommitTime: ev.CommitTime, Time: ev.Time, PayloadKind: ev.PayloadKind},
	}
}

// ExpireDeadLetters implements Store.
func (m *Store) ExpireDeadLetters(ctx context.Context, keep time.Duration, limit int) (changed int, err error) {
	end, err := m.lockFenced(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	old := func(t time.Time) bool { return keep > 0 && !t.IsZero() && time.Since(t) > keep }
	purged := 0
	for _, e := range m.db.entriesWhere(m.isOurs) {
		switch {
		case e.state == Purged && (e.incarnation < m.cfg.Incarnation || e.incarnation == m.cfg.Incarnation && e.position.Commit < m.db.saved[m.cfg.Slot]):
			m.db.remove(e)
		case (e.state == Replayed || e.state == Discarded) && old(e.closed):
			e.purge()
			purged++
		default:
			continue
		}
		changed++
	}
	rest := m.db.requests[:0]
	for _, q := range m.db.requests {
		if q.Slot == m.cfg.Slot && q.System == m.cfg.SystemID && q.State != "waiting" && old(q.doneAt) {
			changed++
			continue
		}
		rest = append(rest, q)
	}
	m.db.requests = rest
	if purged > 0 {
		m.db.audit = append(m.db.audit, AuditNote{Who: store.AgeActor, Why: store.AgeReason(keep), Action: "purge", Result: fmt.Sprint(purged, " dead letters")})
	}
	return changed, nil
}
