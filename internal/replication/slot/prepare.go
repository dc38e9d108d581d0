// What a start does before it streams: publication and slot must exist and be ours, and only an
// operator may decide where that is in doubt. settleSlot and checkStart are the table of all cases:
// what the slot's record says, and what the server has.

package slot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Prepare makes sure that publication and slot exist and are ours, creates them on the first start,
// and fills in the OIDs of the tables. `init` calls it, and `run` calls it before it acquires the
// slot.
//
// Whatever has to be made is made under an advisory lock of a session, which a crash releases. So a
// record in state creating while the lock is free was left by a crash. Its slot may have rows
// before it that were never counted, and is created again.
//
// Each step is bounded, because a server may stop answering in the middle, except those that may
// rightly take long: a migration of the schema, the wait for the lock, the creation, and the count
// of rows.
//
// dial opens the replication connection. The answer has this connection, for a session that begins
// at once.
func Prepare(ctx context.Context, pool *pgxpool.Pool, c *source.Config, dial Dial) (_ *Prepared, err error) {
	p, err := connect(ctx, pool, c, dial)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	rec, view, err := ReadBoth(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	if view != nil && rec != nil && rec.State == StateReady && !rec.PromotedOn(p.ID) {
		// all is there: nothing is made, or written
		p.Record, p.View = rec, view
		return p, settleSlot(ctx, pool, c, p, rec, view)
	}
	return p, WithCreationLock(ctx, pool, c, func(ctx context.Context) error {
		rec, view, err := ReadBoth(ctx, pool, c.Slot)
		if err != nil {
			return err
		}
		return settleSlot(ctx, pool, c, p, rec, view)
	})
}

// Dial opens a replication connection, as source.ConnectStream does.
type Dial func(context.Context, *source.Config) (*pgconn.PgConn, error)

// Prepared is a replication connection, and what Prepare has found over it.
type Prepared struct {
	Stream *pgconn.PgConn
	ID     Identity
	Server source.ServerSettings
	// Record is nil if Prepare has made or changed something: it has not read what there is now
	Record *Record
	View   *View
	Sends  schema.Sends // what a leader has to remember, by Record
}

// Close ends the connection, for a caller that does not stream. A nil Prepared has none.
func (p *Prepared) Close() {
	if p != nil {
		source.CloseStream(p.Stream)
	}
}

// Connect checks what every slot needs, brings the schema up to date and opens the replication
// connection, for commands that make a slot themselves.
func Connect(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (*pgconn.PgConn, Identity, error) {
	p, err := connect(ctx, pool, c, source.ConnectStream)
	if err != nil {
		return nil, Identity{}, err
	}
	return p.Stream, p.ID, nil
}

// errElsewhere: a host went away, or became a standby, in the middle of the first Prepare. From now
// on the pool leads to the server of the stream, so the next try asks that one.
var errElsewhere = errors.New("the replication connection leads to another server than the connections before it")

// connect is Connect for Prepare: dial opens the replication connection.
func connect(ctx context.Context, pool *pgxpool.Pool, c *source.Config, dial Dial) (*Prepared, error) {
	patient := ctx
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	server, err := CheckServer(ctx, pool, c)
	if err != nil {
		return nil, err
	}
	if err := source.CheckGuard(ctx, pool, c.Guard); err != nil {
		return nil, err
	}
	if err := source.CheckFailoverSlot(ctx, pool, c); err != nil {
		return nil, err
	}
	// not bounded: an index of a large retry table takes its time
	if err := schema.Ensure(patient, pool, c); err != nil {
		return nil, err
	}
	stream, err := dial(ctx, c)
	if err != nil {
		return nil, err
	}
	id, err := Identify(ctx, stream)
	if err != nil {
		source.CloseStream(stream)
		return nil, err
	}
	if c.Primary.SetServer(source.ConnectedServer(stream).Server) {
		source.CloseStream(stream)
		return nil, errElsewhere
	}
	return &Prepared{Stream: stream, ID: id, Server: server}, nil
}

// CheckServer checks all of the server's settings that a relay depends on.
func CheckServer(ctx context.Context, q source.Querier, c *source.Config) (source.ServerSettings, error) {
	s, err := source.ReadServerSettings(ctx, q)
	if err == nil {
		err = refuseNamed(c, s.SynchronousStandbys)
	}
	if err == nil {
		err = s.CheckVersion()
	}
	if err == nil {
		err = s.CheckEncoding()
	}
	return s, err
}

// connectTimeout bounds what connect does before and after the migration of the schema.
const connectTimeout = time.Minute

// firstStart reports whether no relay has used the slot yet, so that nothing can be lost with it.
func firstStart(rec *Record, view *View) bool {
	return rec == nil && view == nil || rec != nil && rec.State == StateCreating && !rec.Used
}

// settleSlot finds the tables, and brings the slot into state ready or returns why it cannot.
// Together with checkStart it is the table of all cases.
func settleSlot(ctx context.Context, pool *pgxpool.Pool, c *source.Config, p *Prepared, rec *Record, view *View) error {
	stream, id := p.Stream, p.ID
	tables, err := schema.FindTables(ctx, pool, c, firstStart(rec, view))
	if err != nil {
		return err
	}
	c.Tables = tables
	for _, t := range tables {
		for _, unused := range t.Unused {
			c.Log.Warn("a column that only a default names is not used", zap.Stringer("table", t), zap.String("column", unused))
		}
	}
	if err := checkStart(ctx, pool, c, id, rec, view); err != nil {
		return err
	}
	if rec == nil {
		return CreateSlot(ctx, pool, stream, c, id, schema.Sends{}, true)
	}
	was, err := rec.SentBefore(ctx, pool, id)
	switch {
	case err != nil:
		return err
	case rec.State == StateCreating:
		// a crash left it between its creation and the count of earlier rows
		if err := Drop(ctx, pool, c, id, view, "unfinished"); err != nil {
			return err
		}
		// of one in use the loss is accepted
		return CreateSlot(ctx, pool, stream, c, id, was, !rec.Used)
	case rec.State == StateAdopt && view == nil:
		return CreateSlot(ctx, pool, stream, c, id, was, false)
	case rec.State == StateAdopt:
		return adoptSlot(ctx, pool, c, id, view, was)
	}
	if p.Sends, err = CheckPublication(ctx, pool, c, rec); err != nil || !rec.PromotedOn(id) {
		return err
	}
	return recordPromotion(ctx, pool, c, rec, view, id)
}

// WithCreationLock calls do while it holds the advisory lock on the slot's creation, in a session
// of the pool; a crash releases the lock. While it waits for the lock it logs each minute who holds
// it.
func WithCreationLock(ctx context.Context, pool *pgxpool.Pool, c *source.Config, do func(context.Context) error) error {
	soon, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	conn, err := pool.Acquire(soon)
	cancel()
	if err != nil {
		return err
	}
	defer conn.Release()
	for tries := 0; ; tries++ {
		got, err := tryCreationLock(ctx, conn, c)
		if err != nil {
			return err
		}
		if got {
			break
		}
		if tries%600 == 0 { // each minute: it may be frozen
			if err := nameLocker(ctx, conn, c); err != nil {
				return err
			}
		}
		if !source.Sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	defer unlockCreation(conn, c)
	defer func() { c.CreationLockPID = 0 }()
	return do(ctx)
}

// stillLocked is the condition, in SQL, that the session of WithCreationLock still has the lock;
// outside of WithCreationLock it is true. Each statement that makes or drops a slot, or writes its
// record, has this condition: a process that was frozen for an hour goes on at any statement, and
// another process may have done the work since (TestThawed). A session that was ended never gets
// the lock back.
func stillLocked(c *source.Config) string {
	if c.CreationLockPID == 0 {
		return "true"
	}
	return fmt.Sprintf(`EXISTS (SELECT FROM pg_locks WHERE %s AND pid = %d)`, lockRow(fmt.Sprint(CreationLock), source.QuoteText(c.Slot)), c.CreationLockPID)
}

// lockRow is the condition, in SQL, for the row of pg_locks of a creation lock that is held. key
// and slot are expressions.
func lockRow(key, slot string) string {
	return `locktype = 'advisory' AND granted AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid::bigint = ` + key + ` AND objid::bigint = hashtext(` + slot + `)::bigint & 4294967295`
}

// lockLost is the Stop for a command whose lock on the creation was taken away.
func lockLost(c *source.Config) error {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "slot_active",
		What: fmt.Sprintf("the session that had the lock on the creation of slot %q was ended: another relay or command may have changed the slot since, and it is left as it is", c.Slot),
		Fix:  "look at `cdc-relay check`, and run it again if it is still needed",
	}
}

// nameLocker logs who holds the lock on the creation.
func nameLocker(ctx context.Context, conn *pgxpool.Conn, c *source.Config) error {
	var pid int
	var application, role, since string
	err := source.Ask(ctx, conn, "read who locks the creation of the slot", `SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(to_char(now() - a.query_start, 'HH24:MI:SS'), '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE `+lockRow("$1", "$2"),
		CreationLock, c.Slot).Scan(&pid, &application, &role, &since)
	switch {
	case source.IsNoRows(err): // it has just ended
		return nil
	case err != nil:
		return err
	}
	c.Log.Info("waiting for another relay, or a command (accept, recover, takeover), that works on the slot", zap.String("slot", c.Slot),
		zap.Int("pid", pid), zap.String("application", application), zap.String("role", role), zap.String("silent_for", since),
		zap.String("fix", fmt.Sprintf("let it end; if its process is frozen or nobody's: SELECT pg_terminate_backend(%d)", pid)))
	return nil
}

// tryCreationLock takes the lock on the creation if it is free.
func tryCreationLock(ctx context.Context, conn *pgxpool.Conn, c *source.Config) (got bool, err error) {
	var pid int32 // a pooler has one of its own
	err = source.Ask(ctx, conn, "lock the creation of the slot", `SELECT pg_try_advisory_lock($1, hashtext($2)), pg_backend_pid()`, CreationLock, c.Slot).Scan(&got, &pid)
	if got {
		c.CreationLockPID = pid
	}
	return got, err
}

// CreationLock is the first key of the advisory lock on a slot's creation; the second is the hash
// of the slot's name.
const CreationLock = 0x63646372

// unlockCreation releases the lock. If that fails or takes 2 s, it closes the session: a session
// that keeps the lock would keep every other relay out.
func unlockCreation(conn *pgxpool.Conn, c *source.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1, hashtext($2))`, CreationLock, c.Slot); err != nil {
		c.Log.Debug("unlock failed, closing the session", zap.Error(err))
		_ = conn.Conn().Close(ctx)
	}
}

// adoptSlot uses a slot at its current position, as an operator has accepted it, and logs that
// position. It keeps the tables and prefixes that were sent before, because their rows may be in
// the slot.
func adoptSlot(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity, view *View, was schema.Sends) error {
	if err := CheckIdentity(c, nil, view, id); err != nil {
		return err
	}
	if view.Active() {
		return InUseError(c, view)
	}
	if err := CheckLeftOut(ctx, pool, c, was); err != nil {
		return err
	}
	if err := schema.EnsurePublication(ctx, pool, c); err != nil {
		return err
	}
	sent, err := checkAdoptable(ctx, pool, c, was)
	if err != nil {
		return err
	}
	if err := makeReady(ctx, pool, c, id, sent, view.ConfirmedFlush, false); err != nil {
		return err
	}
	sent.LogForeign(ctx, pool, c)
	c.Log.Warn("slot adopted: events committed before its position are not sent by this relay",
		zap.String("slot", c.Slot), zap.Stringer("lsn", view.ConfirmedFlush))
	return nil
}

// checkAdoptable returns what the publication sends, or why the slot cannot be adopted with it.
func checkAdoptable(ctx context.Context, q source.Querier, c *source.Config, was schema.Sends) (schema.Sends, error) {
	sent, err := schema.CheckPublication(ctx, q, c, schema.Sends{})
	if err != nil {
		return sent, err
	}
	var partitioned bool
	if was.Publication != sent.Publication || was.Version != sent.Version {
		if partitioned, err = refuseUnlistedPartitions(ctx, q, c, sent); err != nil {
			return sent, err
		}
	}
	sent = sent.KeepForeign(was).AddRemembered(was)
	// A listed table may be, or have been, a partition, and rows of the outbox may wait under its
	// name: the relay stops at the first row of each and asks, also when it was foreign before.
	if partitioned {
		sent.Foreign = nil
	}
	return sent, nil
}

// refuseUnlistedPartitions keeps a slot from being adopted when rows in it could be passed over
// unseen: a slot that another program has used, or whose publication was altered. Without
// publish_via_partition_root, which Debezium does not set, a row comes under the name of its
// partition. The relay stops at a row of a table that is a partition now, and at any row of a table
// that the publication listed. Under a publication that has all tables or any schema nothing shows
// what a detached or dropped table belonged to. partitioned is true if one of the tables is.
func refuseUnlistedPartitions(ctx context.Context, q source.Querier, c *source.Config, sent schema.Sends) (partitioned bool, err error) {
	schemas, err := schema.PublishesSchemas(ctx, q, c)
	if err != nil {
		return false, err
	}
	for name, t := range sent.Tables {
		var root, listed bool
		err := source.Ask(ctx, q, "read pg_class", `SELECT relkind = 'p', EXISTS (SELECT FROM pg_publication_rel r WHERE r.oid = ANY ($2::oid[]))
			FROM pg_class WHERE oid = $1`, t.OID, t.Through).Scan(&root, &listed)
		if err != nil && !source.IsNoRows(err) {
			return false, err
		}
		partitioned = partitioned || root
		if root && (schemas || !listed) {
			return true, &event.Stop{
				Code: event.ExitOperator, Reason: "table",
				What: fmt.Sprintf("slot %q may have rows of former partitions of table %s under their own names, which cannot be distinguished from rows of other tables: publication %q does not list the table by name, or has a schema as well",
					c.Slot, name, c.Publication),
				Fix: source.ShowSlotHint(c.Slot) + "; then go on without that: " + source.AcceptCommand + source.NewSlotFlag + source.NewSlotHint(c) + "; then find and re-send what waited in it",
			}
		}
	}
	return partitioned, nil
}

// isFromOtherSystem reports whether what is remembered is of another system: in that case
// Record.SentBefore leaves out the publication.
func isFromOtherSystem(was schema.Sends) bool { return was.Publication == 0 && len(was.Tables) > 0 }

// CheckLeftOut stops the first start on another system if a table has rows here, was relayed there,
// and is not configured. These rows are older than the new slot, so the stream never shows them,
// and nothing else would ask about them. Only the size of the table is read, which needs no right
// on it and runs no code of its owner. A table whose rows were deleted may therefore stop the
// start, too.
func CheckLeftOut(ctx context.Context, q source.Querier, c *source.Config, was schema.Sends) error {
	if !isFromOtherSystem(was) {
		return nil
	}
	configured := c.QuotedTables()
	for _, quoted := range slices.Sorted(maps.Keys(was.Tables)) {
		oid := was.Tables[quoted].OID
		if slices.Contains(configured, quoted) || oid == 0 || slices.Contains(was.Foreign, oid) {
			continue
		}
		var name string
		var rows bool
		err := source.Ask(ctx, q, "read pg_class", `SELECT nspname || '.' || relname, EXISTS (
				SELECT FROM (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) t(oid) WHERE pg_relation_size(t.oid) > 0)
			FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = $1 AND relkind IN ('r', 'p')`, oid).Scan(&name, &rows)
		switch {
		case source.IsNoRows(err):
			continue
		case err != nil:
			return err
		case rows:
			return schema.LeftOutStop(c, name, oid)
		}
	}
	return nil
}

// checkStart returns why a start ends, by what the record says and what the server has; nil means
// that the slot is used, adopted or created. Together with settleSlot it is the table of all cases.
func checkStart(ctx context.Context, q source.Querier, c *source.Config, id Identity, rec *Record, view *View) error {
	switch {
	case rec == nil && view == nil:
		return nil
	case rec == nil:
		return UnknownStop(c, view, id)
	case rec.State == StateCreating && rec.Used:
		if accepted, err := acceptedLoss(ctx, q, c, rec); err != nil || accepted {
			return err
		}
		return UnfinishedStop(c, view)
	case rec.State == StateAdopt && rec.IsOfOtherServer(id) && view != nil:
		// It was accepted on another server. This one is a copy of that, or has taken its place.
		return CheckIdentity(c, rec, view, id)
	case rec.State == StateCreating || rec.State == StateAdopt && !rec.IsOfOtherServer(id):
		return nil
	case rec.State == StateTakeover:
		return TakeoverUnfinishedStop(c, rec)
	case view == nil:
		return MissingStop(c, rec, id)
	}
	return CheckUse(ctx, q, c, rec, view, id)
}
