// Findings (exit 3): what was found wrong with the slot, and the ID by which an operator accepts it
// with `cdc-relay accept`. The ID is a digest of the state of the database, so that nobody accepts
// a state that nobody has looked at.

package slot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// FoundState is the state of the database that a finding is about: our record, the slot, the
// server, and how the publication sends the tables.
//
// A finding's ID is a digest of this state. It has no clock in it, and no position that moves by
// itself. So every process, and the same process later, finds the same ID, until something changes
// that an operator has not seen. The record's incarnation is part of it: an ID that was accepted is
// never open again.
type FoundState struct {
	Record *Record // nil: there is none
	View   *View   // nil: there is no slot
	Server Identity
	ID     string // of a finding about the slot, 12 hex digits; "" in FoundStateOfRows

	c *source.Config
}

// ExamineState reads the state of slot, record and publication, and computes the ID of a finding
// about it. It changes nothing.
func ExamineState(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity) (*FoundState, error) {
	rec, view, err := ReadBoth(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	f := &FoundState{Record: rec, View: view, Server: id, c: c}
	var was schema.Sends
	facts := []any{c.Slot, id.SystemID, id.Timeline, c.Publication}
	if rec != nil {
		was = rec.Sends
		facts = append(facts, rec.SystemID, rec.Timeline, rec.Publication, rec.State, rec.Incarnation, string(was.Text()), rec.TookFrom)
	}
	if view != nil {
		facts = append(facts, view.Plugin, view.Type, view.Database, view.Invalidated())
		if rec != nil && rec.State == StateReady && view.ConfirmedFlush > rec.FlushLimit {
			facts = append(facts, view.ConfirmedFlush) // no relay uses it there, so it stays
		}
	}
	sends, err := was.PublicationFacts(ctx, pool, c)
	if err != nil {
		return nil, err
	}
	f.ID = findingID(append(facts, sends)...)
	return f, nil
}

// FoundStateOfRows is the state for findings about rows alone. Their IDs depend only on the record,
// so nothing else is read.
func FoundStateOfRows(c *source.Config, rec *Record) *FoundState {
	return &FoundState{Record: rec, c: c}
}

// RowsID is the ID of a finding about rows of one table, or messages of one prefix.
func (f *FoundState) RowsID(of event.Rows) string {
	var incarnation int64
	if f.Record != nil {
		incarnation = f.Record.Incarnation
	}
	return findingID("rows", f.c.Slot, incarnation, of.Name, of.OID)
}

// SystemID is the ID of a finding about deferred rows of another system, which are not sent. It
// depends on how many these rows are, and on the number of the last one.
func (f *FoundState) SystemID(other string, rows, last int64) string {
	return findingID("system", f.c.Slot, f.Server.SystemID, other, rows, last)
}

// findingID makes an ID of 48 bits from what a finding is about. It names the finding; it does not
// protect against somebody who may write to the database.
func findingID(facts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", facts))
	return hex.EncodeToString(sum[:6])
}

// NameStop adds to a finding the interval in which rows may be missing (MissingInterval) and, if
// the finding can be accepted, its ID. good is the position at which this process last found
// publication and tables in order; 0 means that it has not checked them. An error that is no
// finding is returned as it is.
func (f *FoundState) NameStop(err error, good pglogrepl.LSN) error {
	stop := unnamedStop(err)
	if stop == nil {
		return err
	}
	named := *stop
	if from, until := f.MissingInterval(stop.Reason, good); from < until && stop.Rows == nil {
		named.What += fmt.Sprintf("; rows committed between %s and %s may be missing", from, until)
	}
	if stop.Acceptable() {
		named.Finding = f.ID
		if stop.Rows != nil {
			named.Finding = f.RowsID(*stop.Rows)
		}
		named.Fix = strings.ReplaceAll(named.Fix, event.FindingID, named.Finding)
	}
	return &named
}

// unnamedStop is the finding in err that still lacks interval and ID; nil means that there is none.
// A Stop that is not about slot or publication gets neither, because its fix is another command, or
// concerns another program.
func unnamedStop(err error) *event.Stop {
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitOperator || stop.Finding != "" {
		return nil
	}
	if stop.Acceptable() || isHidden(stop.Reason) {
		return stop
	}
	return nil
}

// isHidden reports whether a finding with this reason is about rows that the server did not send,
// because the publication or a table hid them.
func isHidden(reason string) bool { return reason == "publication" || reason == "table" }

// MissingInterval is the part of the WAL whose rows may be missing, after a finding with this
// reason. good is the position that NameStop has; the later one of it and Record.Good counts.
//
// If the publication or a table hid rows, the interval goes from that position to the current end
// of the WAL. Otherwise it begins at the last recorded report, and ends at the slot's position, or
// at the end of the WAL if the slot was invalidated. If there is no slot, until is 0, because View,
// which has the end of the WAL, is nil too. Both are 0 if the slot was never used.
func (f *FoundState) MissingInterval(reason string, good pglogrepl.LSN) (from, until pglogrepl.LSN) {
	if f.Record == nil || !f.Record.Used {
		return 0, 0
	}
	from = f.Record.Reported
	switch {
	case isHidden(reason):
		from = max(good, f.Record.Good)
	case f.View != nil && !f.View.Invalidated():
		return from, f.View.ConfirmedFlush
	}
	if f.View != nil {
		until = f.View.Current
	}
	return from, until
}

// MissingStop is the finding (exit 3) for a slot that the record has as ready and that does not
// exist on the server.
func MissingStop(c *source.Config, rec *Record, id Identity) *event.Stop {
	if id.SystemID != "" && rec.IsOfOtherServer(id) {
		stop := source.SlotLost(c, fmt.Sprintf("slot %q does not exist here: it was read from system %s on timeline %d, and this is system %s on timeline %d; what was committed after %s and not delivered before is only in the outbox table",
			c.Slot, rec.SystemID, rec.Timeline, id.SystemID, id.Timeline, rec.Reported), "")
		stop.Fix = source.MovedFix("cdc-relay recover --same-data, which makes a new slot, and sends what is still in the outbox table and what is deferred; or without what may be missing: ", rec.SystemID != id.SystemID)
		return stop
	}
	return source.SlotLost(c, fmt.Sprintf("slot %q no longer exists; what was committed after %s and not delivered before is only in the outbox table",
		c.Slot, rec.Reported), "")
}

// Recovering is the name of the leader in the record of a slot that recover makes. If recover was
// killed, only another recover completes that slot, even if the loss was accepted before.
const Recovering = "cdc-relay recover"

// acceptedLoss reports whether an operator has accepted the loss of a slot that is being made
// again: cdc_relay.gap then has a gap without an end. A start that was cut off then continues
// without asking again.
func acceptedLoss(ctx context.Context, q source.Querier, c *source.Config, rec *Record) (accepted bool, err error) {
	if !rec.Used || rec.Leader == Recovering {
		return false, nil
	}
	err = source.Ask(ctx, q, "read cdc_relay.gap", `SELECT EXISTS (SELECT FROM cdc_relay.gap WHERE slot = $1 AND system_id = $2 AND until_xid IS NULL AND recovered_at IS NULL)`,
		c.Slot, rec.SystemID).Scan(&accepted)
	if err != nil {
		return false, err
	}
	return accepted, nil
}

// UnfinishedStop is the finding (exit 3) for a slot that was lost, and whose new creation was cut
// short. view is what the creation has left; nil means nothing.
func UnfinishedStop(c *source.Config, view *View) *event.Stop {
	newSlot := ""
	if view != nil {
		newSlot = source.NewSlotFlag
	}
	return source.SlotLost(c, fmt.Sprintf("slot %q was being made again, and that was not completed", c.Slot), newSlot)
}

// startRefusal is why the next start would not use the slot as it is: first the reason of
// checkStart, then those that the adoption and the new leader would have. nil means that the next
// start uses the slot, or creates what is missing. startRefusal changes nothing.
//
// A slot that was moved comes before a publication that was altered, whatever the leader finds
// first: one acceptance is for both, and its gap begins at the last report, which may be below the
// last good check.
func (f *FoundState) startRefusal(ctx context.Context, q source.Querier, c *source.Config) error {
	rec, view := f.Record, f.View
	err := checkStart(ctx, q, c, f.Server, rec, view)
	if err == nil && rec != nil && rec.State == StateReady {
		if err = CheckPosition(c, rec, view, 0); err == nil {
			_, err = CheckPublication(ctx, q, c, rec)
		}
	}
	if err != nil || rec == nil || rec.State != StateAdopt {
		return err
	}
	was, err := rec.SentBefore(ctx, q, f.Server)
	if err == nil {
		err = CheckLeftOut(ctx, q, c, was)
	}
	if err == nil && view != nil {
		err = CheckIdentity(c, nil, view, f.Server)
	}
	if err == nil && view != nil {
		_, err = checkAdoptable(ctx, q, c, was)
	}
	return err
}

// CannotBeReadOn returns why a new slot is needed in the place of this one; "" means that none is
// needed. For a slot of another system nothing is said about the publication: the slot was made
// there (and came here by pg_upgrade, say), where the publication had another OID.
func CannotBeReadOn(ctx context.Context, q source.Querier, c *source.Config, id Identity, rec *Record, view *View) (why string, err error) {
	switch {
	case view.Invalidated():
		return "the server has removed WAL that it needs", nil
	case rec == nil:
		return "", nil
	case rec.State == StateCreating:
		return "it was not completed", nil
	case rec.SystemID != id.SystemID || rec.Sends.Publication == 0:
		return "", nil
	}
	var oid uint32
	err = source.Ask(ctx, q, "read pg_publication", `SELECT coalesce((SELECT oid FROM pg_publication WHERE pubname = $1), 0)`, c.Publication).Scan(&oid)
	if err != nil {
		return "", err
	}
	if oid != rec.Sends.Publication && rec.Publication == c.Publication && len(rec.Sends.Tables) > 0 {
		return "rows in it were committed while the publication did not exist", nil
	}
	return "", nil
}

// TakeoverUnfinishedStop is why a relay does not start a slot whose takeover is not complete.
func TakeoverUnfinishedStop(c *source.Config, rec *Record) *event.Stop {
	return source.TakeoverStop(fmt.Sprintf("the takeover by slot %q from slot %q is not complete", c.Slot, rec.TookFrom),
		"cdc-relay takeover --from-slot "+rec.TookFrom)
}

// UnknownStop is the finding for a slot of our name that has no record: another program's slot, or
// one made by hand. Nothing shows what its publication hid while the rows in it were committed.
func UnknownStop(c *source.Config, view *View, id Identity) error {
	if err := CheckIdentity(c, nil, view, id); err != nil {
		return err
	}
	what := "exists, but no relay has used it"
	if holder := view.HolderName(); holder != "" {
		what += "; it is active for " + holder
	}
	stop := source.ForeignSlot(c, what)
	stop.Fix += fmt.Sprintf(", and to go on where the slot's program stops: cdc-relay takeover --from-slot %s; or, if that program is gone for good, find and re-send what its publication may have hidden; to go on: %s",
		c.Slot, source.AcceptCommand)
	return stop
}

// NextStop returns the Stop with which the next start would end, with its ID; nil means that the
// next start uses the slot, or creates it. It finds the tables, whose OIDs are in c from then on,
// and changes nothing in the database.
//
// If a start would go on, the ID of f has the epoch in it afterwards. So a finding that only a
// running relay could make, and that the database does not show, is no longer open once another
// relay leads.
func (f *FoundState) NextStop(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (stop *event.Stop, err error) {
	if err = f.NameStop(f.judgeStart(ctx, pool, c), 0); err != nil && !errors.As(err, &stop) {
		return nil, err
	}
	return withOrder(ctx, pool, c, stop), nil
}

// withOrder adds to the commands in a fix the flag by which recover knows the order of the rows, if
// the database answers.
func withOrder(ctx context.Context, q source.Querier, c *source.Config, stop *event.Stop) *event.Stop {
	if stop == nil || stop.Code != event.ExitOperator {
		return stop
	}
	flag, err := schema.OrderFlag(ctx, q, c.Tables)
	if err != nil {
		return stop // the command says it
	}
	whole := *stop
	whole.Fix = schema.WithOrder(stop.Fix, flag)
	return &whole
}

// judgeStart returns why the next start would not use the slot, without interval and ID. If nothing
// keeps it from using the slot, judgeStart adds the epoch to f.ID.
func (f *FoundState) judgeStart(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	rec := f.Record
	tables, err := schema.FindTables(ctx, pool, c, firstStart(rec, f.View))
	if err == nil {
		c.Tables = tables
		err = f.startRefusal(ctx, pool, c)
	}
	if err == nil && rec != nil {
		f.ID = findingID(f.ID, rec.Epoch)
	}
	return err
}

// ConnectAndNameStop is NameStop over new connections: for a caller that has no connections, or
// whose connections are bound to another server. If the database does not answer, the fix keeps
// FindingID in place of the ID, and says that `cdc-relay check` shows it.
func ConnectAndNameStop(ctx context.Context, c source.Config, err error, good pglogrepl.LSN) error {
	stop := unnamedStop(err)
	if stop == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), source.AnswerTimeout)
	defer cancel()
	f, pool, askErr := connectAndExamine(ctx, &c)
	if askErr != nil {
		return stopWithoutID(stop)
	}
	defer source.ClosePool(pool)
	var judged *event.Stop
	if askErr = f.judgeStart(ctx, pool, &c); askErr != nil && !errors.As(askErr, &judged) {
		return stopWithoutID(stop)
	}
	if err = f.NameStop(err, good); errors.As(err, &judged) {
		return withOrder(ctx, pool, &c, judged)
	}
	return err
}

// connectAndExamine is ExamineState over new connections. The caller closes the pool.
func connectAndExamine(ctx context.Context, c *source.Config) (*FoundState, *pgxpool.Pool, error) {
	c.Primary = nil
	pool, err := source.ConnectPool(c)
	if err != nil {
		return nil, nil, err
	}
	stream, err := source.ConnectStream(ctx, c)
	if err != nil {
		source.ClosePool(pool)
		return nil, nil, err
	}
	defer source.CloseStream(stream)
	id, err := Identify(ctx, stream)
	var f *FoundState
	if err == nil {
		f, err = ExamineState(ctx, pool, c, id)
	}
	if err != nil {
		source.ClosePool(pool)
		return nil, nil, err
	}
	return f, pool, nil
}

// stopWithoutID adds to a finding whose ID is not known where an operator gets the ID.
func stopWithoutID(stop *event.Stop) error {
	if !stop.Acceptable() {
		return stop
	}
	named := *stop
	named.Fix += " (" + event.FindingID + ": `cdc-relay check` says it once PostgreSQL answers)"
	return &named
}

// ReadNextStop is FoundState.NextStop over new connections, for a caller that has none.
func ReadNextStop(ctx context.Context, c source.Config) (*event.Stop, error) {
	f, pool, err := connectAndExamine(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer source.ClosePool(pool)
	return f.NextStop(ctx, pool, &c)
}
