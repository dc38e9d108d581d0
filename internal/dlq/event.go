// Event finds out where the event with an id is.

package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Outbox is a table in which an event's row is searched.
type Outbox struct {
	Schema, Table string
	ID            []string // the id column: the first of these that the table has
	Transaction   []string // likewise that of the row's transaction
	// likewise those of its key, aggregate and type, and its own time; none: it has none
	Key, Aggregate, Type, Timestamp []string

	Deletes bool // retention deletes its rows once they are delivered
}

// Relay is the state that the running relay reports; the zero value when it was not asked or does
// not answer.
type Relay struct {
	Streaming bool
	InFlight  int           // events that are read and not settled
	Settled   pglogrepl.LSN // everything committed below it is settled; 0: not known
	// Stops is what a relay stops at, with what to do; "": nothing, or it is not known
	Stops string
}

// Event says where an event is: with the relay, at the broker, in the retry table or a dead letter.
type Event struct {
	ID    string `json:"id"` // in the form that its row has it
	State string `json:"state"`
	Why   string `json:"why"`  // how that is known
	Rows  []Row  `json:"rows"` // deferred ones and dead letters with this id

	// of a deferred event: when it is tried again, and the deferred row that it waits for
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	Behind      *int64     `json:"behind,omitempty"`

	Table string `json:"table,omitempty"` // the outbox table that has its row
	// of that row, or of the deferred row or dead letter; null: not known, as when
	// track_commit_timestamp is off
	CommittedAt *time.Time `json:"committed_at"`

	// further rows with this id, of other tables or transactions: each is an event of its own
	Others []OtherRow `json:"others,omitempty"`
}

// OtherRow is where the event of a further row is.
type OtherRow struct {
	Table       string     `json:"table"`
	State       string     `json:"state"`
	Why         string     `json:"why"`
	CommittedAt *time.Time `json:"committed_at"`
}

// The states of an Event.
const (
	EventNotSeen    = "not seen"             // its row is committed, and no relay has read it
	EventInFlight   = "in flight"            // it is read and not settled
	EventDeferred   = "deferred"             // it is in the retry table
	EventDeadLetter = "dead letter"          // it was given up
	EventDelivered  = "delivered"            // the broker has confirmed it
	EventUnknown    = "not known to be sent" // the slot is past it, and no confirm is recorded
	EventNotThere   = "not in the table"     // it was deleted, or never written
)

// maxRows is how many rows of one id are shown: ids need not be unique.
const maxRows = 20

// While a relay streams, its word on how far it is comes within moments of the row's commit: Event
// asks again for a short time before it answers that an event is in flight.
const (
	askAgainAfter = 100 * time.Millisecond
	askAgain      = 5
)

// Event returns where the event with an id is. ask returns what the running relay reports; it may
// be called several times.
func (a *Admin) Event(ctx context.Context, id string, tables []Outbox, ask func(context.Context) Relay) (*Event, error) {
	var rows []*outboxRow
	for n := 0; ; n++ {
		relay := ask(ctx)
		e, found, err := a.lookUp(ctx, id, tables, relay, rows)
		unsettled := err == nil && (e.State == EventInFlight || e.State == EventNotSeen)
		if !unsettled || !relay.Streaming || relay.Settled == 0 || n == askAgain {
			return e, err
		}
		rows = found
		select {
		case <-ctx.Done():
			return e, nil
		case <-time.After(askAgainAfter):
		}
	}
}

// lookUp is Event, once. The rows are searched unless an earlier call has found them.
//
// How far the slot and the relay are is read first, then the retry table, then the dead-letter
// table. An event that was settled at the first read is then either delivered, or it was in the
// retry table at that time: it is found there, or in the dead-letter table, or it has been
// delivered since. In another order an event could be deferred in between, and look delivered.
func (a *Admin) lookUp(ctx context.Context, id string, tables []Outbox, relay Relay, rows []*outboxRow) (*Event, []*outboxRow, error) {
	e := &Event{ID: id, Rows: []Row{}}
	far, err := a.progress(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !far.known || !far.active { // it streams from another database, of which this one is a copy
		relay = Relay{Stops: relay.Stops}
	}
	for _, of := range []*Table{Deferred, DeadLetters} {
		page, err := a.List(ctx, of, Filter{ID: []byte(id)}, "", maxRows)
		if err != nil {
			return nil, nil, err
		}
		e.Rows = append(e.Rows, page.Rows...)
	}
	ours := slices.IndexFunc(e.Rows, func(r Row) bool { return !r.Copied })
	unread := ""
	search := tables
	if len(rows) > 0 {
		search = nil
	}
	for _, t := range search {
		row, why, err := a.committed(ctx, id, t)
		if err != nil {
			return nil, nil, err
		}
		if row != nil {
			rows = append(rows, row)
		}
		unread = cmp.Or(why, unread)
	}
	// what is recorded of it has its own form of the id
	if ours < 0 && len(rows) > 0 && rows[0].id != id {
		return a.lookUp(ctx, rows[0].id, tables, relay, rows)
	}
	var places []OtherRow
	for _, row := range rows {
		if ours >= 0 {
			if theirs, err := a.isRetried(ctx, id, row); err != nil {
				return nil, nil, err
			} else if theirs {
				continue
			}
		}
		at := Event{ID: row.id}
		if err := a.place(ctx, &at, row, far, relay); err != nil {
			return nil, nil, err
		}
		places = append(places, OtherRow{row.table, at.State, at.Why, row.committedAt})
	}
	switch {
	case ours >= 0:
		e.Others = places
		return e, rows, a.retryRow(ctx, e, &e.Rows[ours])
	case len(places) > 0:
		first := places[0]
		e.State, e.Why, e.Table, e.CommittedAt, e.Others = first.State, first.Why, first.Table, first.CommittedAt, places[1:]
	case unread != "":
		e.State, e.Why = EventNotThere, "no deferred row or dead letter has this id; the outbox table "+unread
	default:
		e.State = EventNotThere
		e.Why = "no outbox table, deferred row or dead letter has this id: its row was deleted, or never written"
	}
	if len(e.Rows) > 0 {
		e.Why = fmt.Sprintf("row %d of it is of another system (pg_upgrade, restore or copy), and is not sent here: see `cdc-relay check`; of this system: %s", e.Rows[0].N, e.Why)
	}
	return e, rows, nil
}

// retryRow describes an event that has a row, by the first of its rows that is ours: its deferred
// row, or its newest dead letter.
func (a *Admin) retryRow(ctx context.Context, e *Event, r *Row) error {
	e.CommittedAt = &r.CommittedAt
	if r.State != Waiting {
		e.State, e.Why = EventDeadLetter, fmt.Sprintf("dead letter %d: %s", r.N, r.State)
		if r.State == Replayed {
			e.State = EventDelivered
		}
		return nil
	}
	e.State, e.NextAttempt = EventDeferred, r.NextAttempt
	var why []string
	if r.Reason != "" {
		why = append(why, strings.TrimSuffix("refused, "+r.Reason+": "+r.ErrorText, ": "))
	}
	var err error
	if e.Behind, err = a.earlier(ctx, Deferred, r.N); err != nil {
		return err
	}
	switch {
	case e.Behind != nil:
		why = append(why, fmt.Sprintf("it waits behind deferred row %d, an earlier event of its ordering group", *e.Behind))
	case e.NextAttempt != nil:
		why = append(why, "it is tried again at "+e.NextAttempt.Format(time.RFC3339))
	default:
		dead, err := a.earlier(ctx, DeadLetters, r.N)
		if err != nil {
			return err
		}
		wait := "it is sent as soon as its destination, " + r.Destination + ", is tried again and takes it"
		switch {
		case dead == nil || a.OnDeadLetter == "continue":
		case a.OnDeadLetter == "block":
			wait = fmt.Sprintf("it waits until dead letter %d is replayed or discarded, as dead_letters.on_dead_letter is block", *dead)
		default:
			wait += fmt.Sprintf("; with dead_letters.on_dead_letter: block it waits until dead letter %d is replayed or discarded", *dead)
		}
		why = append(why, wait)
	}
	e.Why = fmt.Sprintf("deferred row %d: %s", r.N, strings.Join(why, "; "))
	return nil
}

// The row of an event in an outbox table: how it is searched without running code of the table's
// owner, and where its event is when it has no row in the retry table or among the dead letters.

// outboxRow is an event's row in an outbox table.
type outboxRow struct {
	table string
	id    string // as the stream has it
	// as which the stream may name its table: the leaf that has it, and its parents
	relations   []uint32
	tx          *int64 // the transaction that wrote it; nil: it does not say
	noColumn    bool   // its table has no column for it
	committedAt *time.Time
	seen        pglogrepl.LSN // the end of the WAL after the row was seen; 0: not known
}

// rowSQL reads an outboxRow. The end of the WAL is read after the statement's snapshot. A standby
// does not say it. The server forgets when old transactions were committed, and refuses ids that it
// has given again.
const rowSQL = `SELECT r.id, array(SELECT r.tableoid UNION SELECT relid::oid FROM pg_partition_ancestors(r.tableoid) relid), r.tx,
		CASE WHEN current_setting('track_commit_timestamp')::bool AND r.tx BETWEEN greatest(3, next - 2147483648) AND next - 1
			THEN pg_xact_commit_timestamp((r.tx & 4294967295)::text::xid) END,
		CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_insert_lsn() END
	FROM (SELECT t.tableoid, %s AS id, %s AS tx FROM %s t WHERE %s) r, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n
	ORDER BY r.tx DESC NULLS LAST LIMIT 1`

// committed searches the row in a table; of several the one that was written last. unread is why
// the table is not looked into: reading it could run code of its owner. A value of a type that is
// not PostgreSQL's own is not compared: its casts are its owner's functions. So is a column that is
// computed when it is read.
func (a *Admin) committed(ctx context.Context, id string, t Outbox) (row *outboxRow, unread string, err error) {
	o, err := describeOutbox(ctx, a.db, t)
	ids := o.present(t.ID)
	if len(ids) == 0 || err != nil {
		return nil, "", err
	}
	c := o.columns[ids[0]]
	switch {
	case !c.own:
		return nil, fmt.Sprintf("%s is not searched: its column %s has type %s, which is not one of PostgreSQL's own", o.name, ids[0], c.kind), nil
	case c.computed:
		return nil, fmt.Sprintf("%s is not searched: its column %s is computed when it is read", o.name, ids[0]), nil
	}
	tx, column := o.transaction()
	found := outboxRow{table: t.Schema + "." + t.Table, noColumn: column == ""}
	query := func(condition string) error {
		return sent.ReadTable(ctx, a.db, o.name, func(of pgx.Tx) error {
			if err := o.checkUnaltered(ctx, of); err != nil {
				return err
			}
			sql := fmt.Sprintf(rowSQL, c.textOf(), tx, o.name, condition)
			return of.QueryRow(ctx, sql, id).Scan(&found.id, &found.relations, &found.tx, &found.committedAt, &found.seen)
		})
	}
	err = query(c.quoted + "::" + c.kind + " = $1::text::" + c.kind)
	// the type has no equality, or is not cast from text
	if sqlClass(err, "42883") || sqlClass(err, "42846") {
		err = query(c.quoted + "::text = $1")
	}
	if refusal, ok := sent.IsRefusal(err); ok {
		return nil, refusal.Error(), nil
	}
	// not a value of that type, or the table is gone
	if errors.Is(err, pgx.ErrNoRows) || sqlClass(err, "22") || sent.IsUndefinedTable(err) {
		return nil, "", nil
	}
	found.committedAt = utc(found.committedAt)
	return &found, "", explain("search the row in "+o.name, err)
}

func sqlClass(err error, class string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && strings.HasPrefix(server.Code, class)
}

// progress is how far the slot is: what the server says, if the relay's record is of this system.
type progress struct {
	there, active bool // the slot exists in this database; somebody reads it
	// the record is of this system and its slot is ready; only then the others are set
	known bool

	// the slot's position, and the oldest transaction that it may still send; 0: not known, as when
	// the slot is not where the relay has left it
	confirmed  pglogrepl.LSN
	catalogXID int64

	gap int64 // that was accepted, and no relay has used the slot since; 0: none
}

// progressSQL reads a progress. A slot above the flush limit was re-created or moved, and its
// position says nothing of what the relay has read. The limit is of the statement's snapshot, and
// the slot's position is of a moment later: moved may be wrong while a relay raises the limit.
var progressSQL = `SELECT r.slot_name IS NOT NULL, coalesce(r.active_pid IS NOT NULL, false),
		coalesce(s.state = 'ready' AND s.system_id = (SELECT system_identifier::text FROM pg_control_system()), false),
		coalesce(r.confirmed_flush_lsn, '0/0'), coalesce(` + sent.WholeXIDSQL("r.catalog_xmin") + `, 0),
		coalesce(r.confirmed_flush_lsn > p.max_flush_lsn, true) AS moved,
		coalesce((SELECT min(g.id) FROM cdc_relay.gap g WHERE s.state = 'adopt' AND g.slot = s.slot AND g.system_id = s.system_id AND g.recovered_at IS NULL AND g.until_xid IS NULL), 0)
	FROM (SELECT $1::text AS slot, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) me
		LEFT JOIN cdc_relay.slots s ON s.slot = me.slot LEFT JOIN cdc_relay.progress p ON p.slot = me.slot
		LEFT JOIN pg_replication_slots r ON r.slot_name = me.slot AND r.database = current_database()`

func (a *Admin) progress(ctx context.Context) (p progress, err error) {
	var moved bool
	for range 3 {
		err = a.one(ctx, "read how far the slot is", progressSQL, []any{a.slot}, &p.there, &p.active, &p.known, &p.confirmed, &p.catalogXID, &moved, &p.gap)
		if err != nil || !moved || !p.there {
			break
		}
	}
	if moved || !p.known {
		p.confirmed, p.catalogXID = 0, 0
	}
	return p, err
}

// isPast reports whether the slot is past the transaction of a row, so that it does not send the
// row any more. A row is visible only after its commit is in the WAL, and the slot's position
// passes a transaction only when its events are settled (I1) and recorded.
//
//  1. Below catalogXID: the older ones had ended below the slot's position.
//  2. The position has reached the end of the WAL as it was after the row was seen.
func (p *progress) isPast(row *outboxRow) bool {
	return *row.tx < p.catalogXID || row.seen != 0 && p.confirmed >= row.seen
}

// isRetried reports whether one of the deferred rows and dead letters with an id is of a row: of
// one whose transaction is not known it may be.
func (a *Admin) isRetried(ctx context.Context, id string, row *outboxRow) (yes bool, err error) {
	const same = ` t WHERE t.slot = $1 AND t.id = $2::bytea AND (t.tx IS NULL OR $3::bigint IS NULL OR t.tx = $3) AND (t.relation IS NULL OR t.relation = ANY ($4::bigint[]))`
	relations := make([]int64, len(row.relations))
	for i, oid := range row.relations {
		relations[i] = int64(oid)
	}
	err = a.one(ctx, "read cdc_relay.retry", `SELECT EXISTS (SELECT FROM cdc_relay.retry`+same+`) OR EXISTS (SELECT FROM cdc_relay.dead_letter`+same+` AND `+prefixExpression("t.id")+` = $5::bytea)`,
		[]any{a.slot, []byte(id), row.tx, relations, prefix([]byte(id))}, &yes)
	return yes, err
}

// place looks up what became of an event whose row is in the outbox, and that has no row in the
// retry table and no dead letter with its id; a purged one is found by its digest.
func (a *Admin) place(ctx context.Context, e *Event, row *outboxRow, p progress, relay Relay) error {
	var delivered bool
	var purged int64
	if row.tx != nil && *row.tx > 0 {
		digest, _ := sent.Digest(uint64(*row.tx), []byte(e.ID), nil)
		err := errors.Join(
			a.one(ctx, "read cdc_relay.sent", sent.HasSQL, []any{a.slot, row.relations, sent.Chunk(uint64(*row.tx)), digest}, &delivered),
			a.one(ctx, "read cdc_relay.dead_letter", `SELECT coalesce(max(n), 0) FROM cdc_relay.dead_letter WHERE slot = $1 AND digest = $2 AND relation::oid = ANY ($3::oid[])`, []any{a.slot, digest, row.relations}, &purged))
		if err != nil {
			return err
		}
	}
	a.judge(e, row, delivered, purged, p, relay)
	return nil
}

// addColumnFix is what makes deliveries known of a table that lacks the column.
const addColumnFix = "run the SQL that `cdc-relay init --add-transaction-column` prints, and deliveries of later rows are"

// judge describes it by what is recorded: a confirm, and the number of its purged dead letter.
func (a *Admin) judge(e *Event, row *outboxRow, delivered bool, purged int64, p progress, relay Relay) {
	switch {
	case purged > 0:
		e.State, e.Why = EventDeadLetter, fmt.Sprintf("dead letter %d: %s", purged, Purged)
	case delivered:
		e.State, e.Why = EventDelivered, "the broker has confirmed it (it is in cdc_relay.sent)"
	case row.noColumn:
		e.State, e.Why = EventUnknown, "table "+row.table+" has no column for the transaction that wrote a row (outbox.transaction), by which deliveries are recorded: "+addColumnFix
	case row.tx == nil:
		e.State, e.Why = EventUnknown, "its row does not have the transaction that wrote it (outbox.transaction), by which deliveries are recorded"
	case p.isPast(row):
		e.State, e.Why = EventUnknown, "the slot is past its transaction, and no confirm of it is recorded: it was written before the slot, passed over, or is not the row that was inserted"
	case relay.Stops != "" && !p.active:
		e.State, e.Why = EventNotSeen, "its row is committed, and no relay leads; the next start stops: "+relay.Stops
	case p.gap != 0 && !p.active:
		e.State, e.Why = EventNotSeen, fmt.Sprintf("its row is committed, and no relay leads; it may be of gap %d, which was accepted: what the next start does not send of that, `cdc-relay resend --gap %[1]d` sends after it", p.gap)
	case !p.there:
		e.State, e.Why = EventNotSeen, fmt.Sprintf("its row is committed, and slot %q is not in this database: see `cdc-relay check`", a.slot)
	case relay.Streaming && relay.InFlight > 0:
		e.State, e.Why = EventInFlight, fmt.Sprintf("the relay has %d events in flight, and has not settled all that was committed up to this one", relay.InFlight)
	case relay.Streaming && relay.Settled != 0 && (row.seen == 0 || relay.Settled < row.seen):
		e.State, e.Why = EventNotSeen, fmt.Sprintf("the relay has nothing in flight, and has read up to %s: the server has not sent it more", relay.Settled)
	case p.active:
		e.State, e.Why = EventInFlight, "a relay reads the slot, and the slot is not past this row's transaction"
	default:
		e.State, e.Why = EventNotSeen, "its row is committed, and no relay leads: it is sent when one does"
	}
}
