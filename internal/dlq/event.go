// Where one event is: `events show` looks for it in the outbox tables, the retry table, the
// dead letters and the sent set, and combines that with how far the relay is.

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

// Outbox is an outbox table, in which the row of an event may be.
type Outbox struct {
	Schema, Table string
	ID            []string // the id column: the first of these names that the table has
	Transaction   []string // likewise, the column with the transaction that wrote the row
	// Likewise, the columns of its key, aggregate, type and time. An empty list means that there is
	// no such column.
	Key, Aggregate, Type, Timestamp []string

	Deletes bool // retention deletes rows once they are delivered
}

// Relay is the state of the running relay. It is the zero value when the relay was not asked or
// does not answer.
type Relay struct {
	Streaming bool
	InFlight  int // events that were read and are not settled
	// everything that was committed below it is settled; 0 when it is not known
	Settled pglogrepl.LSN
	// Stops says at what a relay stops, and what to do; "" when it does not stop, or that is not
	// known.
	Stops string
}

// Event says where an event is.
type Event struct {
	ID    string `json:"id"` // in the form that the event's row has
	State string `json:"state"`
	Why   string `json:"why"`  // how that is known
	Rows  []Row  `json:"rows"` // deferred rows and dead letters with this id

	// Of a deferred event: when it is tried again, and the deferred row that it waits for.
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	Behind      *int64     `json:"behind,omitempty"`

	Table string `json:"table,omitempty"` // the outbox table that has its row
	// of the row in the outbox table, or of the deferred row or dead letter; null when it is not
	// known, as when track_commit_timestamp is off
	CommittedAt *time.Time `json:"committed_at"`

	// further rows with this id, in other tables or of other transactions; each is an event of its
	// own
	Others []OtherRow `json:"others,omitempty"`
}

// OtherRow says where the event of a further row with the same id is.
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

// maxRows is how many rows with one id are shown, because ids need not be unique.
const maxRows = 20

// While a relay streams, it reports how far it is within moments of a row's commit. So Event asks
// it again for a short time before it answers that an event is in flight.
const (
	askAgainAfter = 100 * time.Millisecond
	askAgain      = 5
)

// Event returns where the event with an id is. ask returns what the running relay reports, and may
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

// lookUp does the work of Event once. It searches the rows unless an earlier call has found them.
//
// It first reads how far the slot and the relay are, then the retry table, and then the
// dead letters. An event that was settled at the first read is either delivered, or was in the
// retry table at that time: then it is found there or among the dead letters, or it has been
// delivered since. In another order an event could be deferred in between, and would look
// delivered.
func (a *Admin) lookUp(ctx context.Context, id string, tables []Outbox, relay Relay, rows []*outboxRow) (*Event, []*outboxRow, error) {
	e := &Event{ID: id, Rows: []Row{}}
	far, err := a.progress(ctx)
	if err != nil {
		return nil, nil, err
	}
	// the relay streams from another database, of which this one is a copy
	if !far.known || !far.active {
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
	// the records about the event have the row's form of the id
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

// retryRow describes an event by the first of its rows that belongs to this system: its deferred
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

// The row of an event in an outbox table: how it is read without running code of the table's owner,
// and where its event is when there is no deferred row or dead letter of it.

// outboxRow is the row of an event in an outbox table.
type outboxRow struct {
	table string
	id    string // as the stream has it
	// relations are the OIDs by which the stream may name the row's table: the leaf that has it,
	// and its parents.
	relations   []uint32
	tx          *int64 // the transaction that wrote the row; nil when the row does not tell
	noColumn    bool   // its table has no column for the transaction
	committedAt *time.Time
	seen        pglogrepl.LSN // the end of the WAL after the row was seen; 0 when it is not known
}

// rowSQL reads an outboxRow. It reads the end of the WAL after the statement's snapshot was taken.
// A standby does not tell the end. The server forgets the commit times of old transactions, and
// refuses ids that it has used again.
const rowSQL = `SELECT r.id, array(SELECT r.tableoid UNION SELECT relid::oid FROM pg_partition_ancestors(r.tableoid) relid), r.tx,
		CASE WHEN current_setting('track_commit_timestamp')::bool AND r.tx BETWEEN greatest(3, next - 2147483648) AND next - 1
			THEN pg_xact_commit_timestamp((r.tx & 4294967295)::text::xid) END,
		CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_insert_lsn() END
	FROM (SELECT t.tableoid, %s AS id, %s AS tx FROM %s t WHERE %s) r, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n
	ORDER BY r.tx DESC NULLS LAST LIMIT 1`

// committed searches the row in a table; of several rows it returns the one that was written last.
// unread says why the table is not read: that could run code of its owner. A value of a type that
// is not PostgreSQL's own is not compared, because its casts are functions of its owner. Neither is
// a column that is computed when it is read.
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
	// the type has no equality, or no cast from text
	if sqlClass(err, "42883") || sqlClass(err, "42846") {
		err = query(c.quoted + "::text = $1")
	}
	if refusal, ok := sent.IsRefusal(err); ok {
		return nil, refusal.Error(), nil
	}
	// the id is no value of that type, or the table no longer exists
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

// progress is how far the slot is, as the server tells, if the relay's record belongs to this
// system.
type progress struct {
	there, active bool // the slot exists in this database; a process reads it
	// known says that the record belongs to this system and that its slot is ready. The fields
	// below are set only then.
	known bool

	// The slot's position, and the oldest transaction that it may still send; 0 when they are not
	// known, as when the slot is not where the relay has left it.
	confirmed  pglogrepl.LSN
	catalogXID int64

	gap int64 // an accepted gap, when no relay has used the slot since; 0 without one
}

// progressSQL reads a progress. A slot above the flush limit was re-created or moved, and its
// position does not tell what the relay has read. The limit is from the statement's snapshot, and
// the slot's position from a moment later, so moved may be wrong while a relay raises the limit.
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

// isPast reports whether the slot is past the transaction of a row, and so does not send the row
// any more. A row becomes visible only after its commit is in the WAL, and the slot's position
// passes a transaction only when its events are settled (I1) and recorded. Either of these shows
// it:
//
// 1. The transaction is below catalogXID: all older ones had ended below the slot's position. 2.
// The position has reached the end of the WAL as it was after the row was seen.
func (p *progress) isPast(row *outboxRow) bool {
	return *row.tx < p.catalogXID || row.seen != 0 && p.confirmed >= row.seen
}

// isRetried reports whether one of the deferred rows and dead letters with an id belongs to a row.
// One without a known transaction counts as belonging to it.
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

// place finds out what became of an event that has a row in an outbox table, and no deferred row or
// dead letter with its id. A purged dead letter is found by its digest.
func (a *Admin) place(ctx context.Context, e *Event, row *outboxRow, p progress, relay Relay) error {
	var delivered bool
	var purged int64
	if row.tx != nil && *row.tx > 0 {
		digest := sent.Digest(uint64(*row.tx), []byte(e.ID))
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

// addColumnFix tells how deliveries become known of a table without the column.
const addColumnFix = "run the SQL that `cdc-relay init --add-transaction-column` prints, and deliveries of later rows are"

// judge sets the state of an event: by a recorded confirm, by the number of its purged dead letter,
// or by how far the slot and the relay are.
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
