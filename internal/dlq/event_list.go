// The list of a key's events: where each of them is, the newest first.

package dlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// EventFilter chooses events of one key.
type EventFilter struct {
	Key             []byte
	Aggregate, Type []byte // nil matches any
	State           string // one of EventStates; "" matches any
	// When the event was committed or, where that is not known, the time in its row: From <= at <
	// To.
	From, To time.Time
	Limit    int // 1 to MaxLimit
}

// EventStates are the states that a filter can name.
var EventStates = []string{EventNotSeen, EventInFlight, EventDeferred, EventDeadLetter, EventDelivered, EventUnknown}

// EventState reads the name of a state, whose words may be joined as in dead-letter.
func EventState(s string) string { return strings.NewReplacer("-", " ", "_", " ").Replace(s) }

// Check returns an error for a filter that could never choose an event.
func (f *EventFilter) Check() error {
	if f.Key == nil {
		return &BadInput{"key", "is missing: whose events?"}
	}
	if f.State != "" && !slices.Contains(EventStates, f.State) {
		return &BadInput{"state", fmt.Sprintf("is %q, want one of %s", f.State, strings.Join(EventStates, ", "))}
	}
	if f.Limit < 1 || f.Limit > MaxLimit {
		return &BadInput{"limit", fmt.Sprintf("is %d, want 1 to %d", f.Limit, MaxLimit)}
	}
	same := Filter{Key: f.Key, Aggregate: f.Aggregate, Type: f.Type, From: f.From, To: f.To}
	return same.Check(DeadLetters)
}

// Events makes a filter of events. It uses the parts of the input that EventFilter has.
func (in *FilterInput) Events(limit int) (f EventFilter, err error) {
	f = EventFilter{Key: octets(in.Key), Aggregate: octets(in.Aggregate), Type: octets(in.Type), Limit: limit}
	if in.State != nil {
		if f.State = EventState(*in.State); f.State == "" {
			return f, &BadInput{"state", "is empty; leave it out to match any"}
		}
	}
	if in.From != nil {
		f.From = *in.From
	}
	if in.To != nil {
		f.To = *in.To
	}
	return f, f.Check()
}

// ListedEvent is an event in a list. It has nothing of its payload and headers.
type ListedEvent struct {
	ID        *string `json:"id"` // null when the row could not be decoded
	State     string  `json:"state"`
	Why       string  `json:"why"` // how that is known
	Aggregate *string `json:"aggregate"`
	Key       *string `json:"key"`
	Type      *string `json:"type"`

	// null when it is not known, as when track_commit_timestamp is off
	CommittedAt *time.Time `json:"committed_at"`
	// the time in the row, from outbox.timestamp or a column such as created_at; null without one
	EventTime *time.Time `json:"event_time"`

	Table string `json:"table,omitempty"` // the outbox table that has its row
	// the number of its deferred row or dead letter
	N           int64  `json:"n,omitempty"`
	Destination string `json:"destination,omitempty"` // of the deferred row or dead letter
	Reason      string `json:"reason,omitempty"`      // of its last refusal

	Cut    []string `json:"cut,omitempty"`    // names of values that are cut
	Copied bool     `json:"copied,omitempty"` // it belongs to another system, and is not sent here

	tx *int64
}

// at returns when the event was committed or, where that is not known, the time in its row.
func (e *ListedEvent) at() *time.Time { return cmp.Or(e.CommittedAt, e.EventTime) }

// EventList is the answer of Events, the newest event first.
type EventList struct {
	Items []ListedEvent `json:"items"`
	More  bool          `json:"more"` // there are older events
	// Complete is false when something was not searched: an event may be missing.
	Complete bool           `json:"complete"`
	Notes    []string       `json:"notes"` // what the list does not have, and why
	Missing  []MissingIndex `json:"missing_indexes"`
}

// Events lists the events of a key: those in the retry table, among the dead letters, and with a
// row in an outbox table. ask is as in Event. How much it reads is bounded, whatever the tables
// have.
//
// It reads the rows of the outbox tables first, then how far the slot is, then the retry table,
// then the dead letters, and then what is recorded as sent. lookUp explains this order.
func (a *Admin) Events(ctx context.Context, f EventFilter, tables []Outbox, ask func(context.Context) Relay) (*EventList, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	most := f.Limit
	if f.State != "" || !f.From.IsZero() || !f.To.IsZero() {
		most = maxExamined // these are known of a row only after it was read
	}
	search := eventSearch{a: a, f: &f, forms: []string{string(f.Key)}, list: &EventList{Complete: true, Notes: []string{}, Missing: []MissingIndex{}}}
	for _, t := range tables {
		found, err := a.keyRows(ctx, &f, t, most)
		if err != nil {
			return nil, err
		}
		search.rows = append(search.rows, found.rows...)
		search.list.Notes, search.list.Missing = append(search.list.Notes, found.notes...), append(search.list.Missing, found.missing...)
		search.more = search.more || found.more
		for _, form := range found.forms {
			if !slices.Contains(search.forms, form) {
				search.forms = append(search.forms, form)
			}
		}
		search.list.Complete = search.list.Complete && len(found.notes) == 0
		if found.ownTime != "" && slices.ContainsFunc(found.rows, func(r keyRow) bool { return r.committedAt == nil && r.at != nil }) {
			search.list.Notes = append(search.list.Notes, fmt.Sprintf("the times (*) of %s.%s are those of its column %q", t.Schema, t.Table, found.ownTime))
		}
		if t.Deletes {
			search.list.Notes = append(search.list.Notes, fmt.Sprintf("retention deletes rows of %s.%s that were delivered: they are not listed", t.Schema, t.Table))
		}
	}
	for n := 0; ; n++ {
		relay := ask(ctx)
		unsettled, err := search.look(ctx, relay)
		if err != nil {
			return nil, err
		}
		if !unsettled || !relay.Streaming || relay.Settled == 0 || n == askAgain {
			return search.result(most), nil
		}
		select {
		case <-ctx.Done():
			return search.result(most), nil
		case <-time.After(askAgainAfter):
		}
	}
}

// eventSearch is the state of one call of Events.
type eventSearch struct {
	a     *Admin
	f     *EventFilter
	forms []string // forms of the key: as it was given, and as columns have it
	rows  []keyRow // rows of the outbox tables
	more  bool     // there are more of these rows
	list  *EventList

	items []ListedEvent // what the last look has found
	notes []string      // likewise
	whole bool          // likewise; nothing was left out
	older bool          // likewise; there are more deferred rows or dead letters
}

// look finds out where the events are. It reports whether one of them may be settled in a moment.
func (s *eventSearch) look(ctx context.Context, relay Relay) (unsettled bool, err error) {
	s.items, s.notes, s.whole, s.older = nil, nil, true, false
	far, err := s.a.progress(ctx)
	if err != nil {
		return false, err
	}
	if !far.known || !far.active {
		relay = Relay{Stops: relay.Stops}
	}
	held, err := s.held(ctx, smallRetry)
	if err != nil {
		return false, err
	}
	seen := map[string]bool{} // events with a newer row in the list
	byID := map[string][]int{}
	for i := range held {
		r := &held[i]
		if r.ID != nil && !r.Copied {
			byID[*r.ID] = append(byID[*r.ID], i)
		}
	}
	tables := make([]string, len(held))
	var notHeld []*keyRow
	for i := range s.rows {
		row, ours := &s.rows[i], false
		for _, n := range byID[row.id] {
			if row.isOf(&held[n]) && !slices.Contains(row.cut, "id") {
				ours, tables[n] = true, row.table
			}
		}
		if !ours {
			notHeld = append(notHeld, row)
		}
	}
	for i := range held {
		r := &held[i]
		if tables[i] != "" || s.chooses(r) {
			item := heldEvent(r, tables[i])
			if name := item.name(r); !seen[name] {
				seen[name] = true
				s.items = append(s.items, item)
			}
		}
	}
	recorded, err := s.a.recorded(ctx, notHeld)
	if err != nil {
		return false, err
	}
	for i, row := range notHeld {
		e := Event{ID: row.id}
		if slices.Contains(row.cut, "id") {
			e.State, e.Why = EventUnknown, "its id is too long for a list: see `cdc-relay events show`"
		} else {
			s.a.judge(&e, &row.outboxRow, recorded[i].delivered, recorded[i].purged, far, relay)
		}
		unsettled = unsettled || e.State == EventInFlight || e.State == EventNotSeen
		s.items = append(s.items, ListedEvent{
			ID: &row.id, State: e.State, Why: e.Why, Aggregate: row.aggregate, Key: &row.key, Type: row.kind,
			CommittedAt: row.committedAt, EventTime: row.at, Table: row.table, N: recorded[i].purged, Cut: row.cut, tx: row.tx,
		})
	}
	return unsettled, nil
}

// isOf reports whether a deferred row or dead letter with the same id belongs to this row.
func (row *keyRow) isOf(r *Row) bool {
	return (r.tx == nil || row.tx == nil || *r.tx == *row.tx) && (r.relation == nil || slices.Contains(row.relations, uint32(*r.relation)))
}

// held returns the deferred rows and then the dead letters: those of the key, and those of the
// outbox rows that were found. Of several for the same event the first one counts. A retry table of
// more than small bytes is only searched by an index.
func (s *eventSearch) held(ctx context.Context, small int64) (list []Row, err error) {
	ids := [][]byte{}
	for i := range s.rows {
		ids = append(ids, []byte(s.rows[i].id))
	}
	for _, of := range []*Table{Deferred, DeadLetters} {
		known := map[int64]bool{}
		if slow, err := s.a.retryWithoutIndex(ctx, of, small); err != nil {
			return nil, err
		} else if slow {
			s.whole = false
			s.notes = append(s.notes, "cdc_relay.retry is large, and has no index on the key: deferred events are listed only if an outbox table has their row")
		} else {
			for _, form := range s.forms {
				rows, more, err := s.rowsOfKey(ctx, of, form)
				if err != nil {
					return nil, err
				}
				s.older = s.older || more
				for _, r := range rows {
					known[r.N] = true
				}
				list = append(list, rows...)
			}
		}
		for part := range slices.Chunk(ids, 1000) {
			rows, err := s.ofIDs(ctx, of, part)
			if err != nil {
				return nil, err
			}
			for _, r := range rows {
				if !known[r.N] {
					list = append(list, r)
				}
			}
		}
	}
	return list, nil
}

// ofIDs reads all rows with these ids from a table.
func (s *eventSearch) ofIDs(ctx context.Context, of *Table, ids [][]byte) ([]Row, error) {
	prefixes := make([][]byte, len(ids))
	for i := range ids {
		prefixes[i] = prefix(ids[i])
	}
	rows, more, err := s.a.rows(ctx, "SELECT "+columnList(of, listText)+" FROM "+of.name+" t WHERE t.slot = $1 AND "+prefixExpression("t.id")+" = ANY ($2::bytea[]) AND t.id = ANY ($3::bytea[]) ORDER BY "+of.order(),
		[]any{s.a.slot, prefixes, ids}, listText, maxExamined)
	switch {
	case err != nil || !more:
		return rows, err
	case len(ids) == 1:
		s.older = true
		return rows, nil
	}
	// Without the rows that were not read, their events would seem to wait nowhere.
	first, err := s.ofIDs(ctx, of, ids[:len(ids)/2])
	if err != nil {
		return nil, err
	}
	second, err := s.ofIDs(ctx, of, ids[len(ids)/2:])
	return append(first, second...), err
}

// rowsOfKey reads the rows of a table whose key is form, the newest first. more says that there are
// others.
func (s *eventSearch) rowsOfKey(ctx context.Context, of *Table, form string) (list []Row, more bool, err error) {
	f := Filter{Key: []byte(form), Aggregate: s.f.Aggregate, Type: s.f.Type}
	most := MaxLimit
	if s.f.State != "" || !s.f.From.IsZero() || !s.f.To.IsZero() {
		most = maxExamined
	}
	for cursor := ""; ; {
		page, err := s.a.List(ctx, of, f, cursor, MaxLimit)
		if err != nil {
			return nil, false, err
		}
		list = append(list, page.Rows...)
		if cursor = page.Next; cursor == "" || len(list) >= most {
			return list, cursor != "", nil
		}
	}
}

// retryIndexSQL makes the index with which deferred events of a key are found in a large retry
// table.
const retryIndexSQL = "CREATE INDEX CONCURRENTLY ON cdc_relay.retry (substring(key, 1, 200), slot, n DESC)"

// retryWithoutIndex reports whether a table is the retry table, is too large to be read whole, and
// has no index on the key. An operator may add the index. It does not exist by default, because the
// relay has no use for it and every deferred event would pay for it.
func (a *Admin) retryWithoutIndex(ctx context.Context, of *Table, small int64) (slow bool, err error) {
	if of != Deferred {
		return false, nil
	}
	err = a.one(ctx, "read the indexes of cdc_relay.retry", `SELECT pg_relation_size(r.oid) > $1 AND NOT EXISTS (
			SELECT FROM pg_index i JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
				JOIN pg_attribute k ON k.attrelid = r.oid AND k.attname = 'key' AND d.refclassid = 'pg_class'::regclass AND d.refobjid = r.oid AND d.refobjsubid = k.attnum
			WHERE i.indrelid = r.oid AND i.indisvalid AND i.indpred IS NULL AND i.indkey[0] = 0)
		FROM (SELECT 'cdc_relay.retry'::regclass::oid) r`, []any{small}, &slow)
	return slow, err
}

// recordedState is what is recorded about a row of an outbox table.
type recordedState struct {
	delivered bool
	purged    int64 // the number of its purged dead letter; 0 without one
}

// recorded reads what is recorded about rows, in one statement for all of them.
func (a *Admin) recorded(ctx context.Context, rows []*keyRow) ([]recordedState, error) {
	out := make([]recordedState, len(rows))
	var at []int32
	var digests, txs []int64
	var leaves []uint32
	for i, row := range rows {
		if row.digest != nil && row.tx != nil {
			at, digests, txs, leaves = append(at, int32(i)), append(digests, *row.digest), append(txs, *row.tx), append(leaves, row.leaf)
		}
	}
	if len(at) == 0 {
		return out, nil
	}
	type state struct {
		i int32
		recordedState
	}
	list, err := all(ctx, a, "read cdc_relay.sent", recordedSQL, []any{a.slot, at, digests, txs, leaves}, func(row pgx.CollectableRow) (s state, err error) {
		return s, row.Scan(&s.i, &s.delivered, &s.purged)
	})
	for _, s := range list {
		out[s.i] = s.recordedState
	}
	return out, err
}

// chooses reports whether a row that was found by its id also has the key. An outbox row can have
// the id of an event with another key only if an UPDATE has changed its key.
func (s *eventSearch) chooses(r *Row) bool {
	return r.Key != nil && (slices.Contains(s.forms, *r.Key) || slices.Contains(r.Cut, "key"))
}

// heldEvent describes the event of a deferred row or dead letter.
func heldEvent(r *Row, table string) ListedEvent {
	e := ListedEvent{
		ID: r.ID, State: EventDeadLetter, Why: fmt.Sprintf("dead letter %d: %s", r.N, r.State), Aggregate: r.Aggregate, Key: r.Key, Type: r.Type,
		CommittedAt: &r.CommittedAt, Table: table, N: r.N, Destination: r.Destination, Reason: r.Reason, Cut: r.Cut, Copied: r.Copied, tx: r.tx,
	}
	switch r.State {
	case Waiting:
		e.State, e.Why = EventDeferred, fmt.Sprintf("deferred row %d", r.N)
		if r.Reason != "" {
			e.Why += ": refused, " + r.Reason
		}
	case Replayed:
		e.State = EventDelivered
	}
	if r.Copied {
		e.Why += ", of another system (pg_upgrade, restore or copy)"
	}
	return e
}

// name tells events apart. A row that could not be decoded, or that belongs to another system,
// counts as an event of its own.
func (e *ListedEvent) name(r *Row) string {
	if r.ID == nil || r.Copied || slices.Contains(r.Cut, "id") {
		return fmt.Sprintf("row %d", r.N)
	}
	number := func(n *int64) int64 {
		if n == nil {
			return -1
		}
		return *n
	}
	return fmt.Sprintf("%d/%d/%s", number(r.tx), number(r.relation), *r.ID)
}

// result sorts and cuts what the last look has found.
func (s *eventSearch) result(most int) *EventList {
	out := s.list
	out.Complete = out.Complete && s.whole
	out.Notes = append(s.notes, out.Notes...)
	if !s.whole {
		out.Missing = append(out.Missing, MissingIndex{"cdc_relay.retry", "it is large, and has no index on the key", []string{retryIndexSQL}})
	}
	timeless := map[string]int{}
	out.Items = slices.DeleteFunc(s.items, func(e ListedEvent) bool {
		at := e.at()
		switch {
		case s.f.State != "" && e.State != s.f.State:
			return true
		case s.f.From.IsZero() && s.f.To.IsZero():
			return false
		case at == nil:
			timeless[e.Table]++
			return true
		}
		return at.Before(s.f.From) || !s.f.To.IsZero() && !at.Before(s.f.To)
	})
	for table, n := range timeless {
		out.Complete = false
		out.Notes = append(out.Notes, fmt.Sprintf("%d rows of %s are left out, because it is not known when they were committed: that takes track_commit_timestamp = on, or a column named in outbox.timestamp", n, table))
	}
	sortEvents(out.Items)
	out.More = s.more || s.older || len(out.Items) > s.f.Limit
	if (s.more || s.older) && most == maxExamined && len(out.Items) < s.f.Limit {
		out.Complete = false
		out.Notes = append(out.Notes, fmt.Sprintf("only the newest %d rows of the key were looked at in each table", most))
	}
	out.Items = append([]ListedEvent{}, out.Items[:min(len(out.Items), s.f.Limit)]...)
	return out
}

// sortEvents puts the newest first: by the commit time if that is known of all, otherwise by the
// transaction. Events whose transaction is not known come after the others, by the time in their
// row.
func sortEvents(list []ListedEvent) {
	dated := !slices.ContainsFunc(list, func(e ListedEvent) bool { return e.CommittedAt == nil })
	slices.SortStableFunc(list, func(a, b ListedEvent) int {
		byTx := -compareOr(a.tx, b.tx, func(a, b int64) int { return cmp.Compare(a, b) })
		if dated {
			return cmp.Or(b.CommittedAt.Compare(*a.CommittedAt), byTx)
		}
		return cmp.Or(byTx, -compareOr(a.at(), b.at(), time.Time.Compare))
	})
}

// recordedSQL does what sent.HasSQL does, and finds the purged dead letter, for many rows: their
// places are $2, their digests $3, transactions $4 and leaves $5.
var recordedSQL = `SELECT r.i,
		EXISTS (SELECT FROM cdc_relay.sent s WHERE s.slot = $1 AND s.relation = ANY (r.relations) AND s.chunk = r.tx >> ` + fmt.Sprint(sent.ChunkBits) + ` AND r.digest = ANY (s.digests) AND s.at < 'infinity'),
		coalesce((SELECT max(d.n) FROM cdc_relay.dead_letter d WHERE d.slot = $1 AND d.digest = r.digest AND d.relation::oid = ANY (r.relations)), 0)
	FROM (SELECT i, digest, tx, array(SELECT leaf UNION SELECT relid::oid FROM pg_partition_ancestors(leaf) relid) AS relations
		FROM unnest($2::int[], $3::bigint[], $4::bigint[], $5::oid[]) u (i, digest, tx, leaf) OFFSET 0) r`
