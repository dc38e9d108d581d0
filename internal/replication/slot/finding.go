// What is found, and its name: the ID that `cdc-relay accept` takes, which another state of the
// database does not have.

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

// Found is the state of the database that a finding is about: our record, the slot, the server, and
// how the publication sends the tables.
//
// A finding's ID is a digest of these. It has no clock and no position that moves by itself, so
// every process, and the same one later, finds the same ID, until something changes that an
// operator has not seen. The record's incarnation is part of it: an ID that was accepted is never
// open again.
type Found struct {
	Record *Record // nil: there is none
	View   *View   // nil: there is no slot
	Server Identity
	ID     string

	c *source.Config
}

// Examine reads the state. It changes nothing.
func Examine(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity) (*Found, error) {
	rec, view, err := ReadBoth(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	f := &Found{Record: rec, View: view, Server: id, c: c}
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
	sends, err := was.Facts(ctx, pool, c)
	if err != nil {
		return nil, err
	}
	f.ID = digest(append(facts, sends)...)
	return f, nil
}

// FoundRows is the state for findings about rows alone: no more of it is read.
func FoundRows(c *source.Config, rec *Record) *Found { return &Found{Record: rec, c: c} }

// RowsID is the ID of a finding about rows of one table, or messages of one prefix.
func (f *Found) RowsID(of event.Rows) string {
	var incarnation int64
	if f.Record != nil {
		incarnation = f.Record.Incarnation
	}
	return digest("rows", f.c.Slot, incarnation, of.Name, of.OID)
}

// SystemID is the ID of a finding about the rows of another system, which are not sent: so many,
// and the last one of this number.
func (f *Found) SystemID(other string, rows, last int64) string {
	return digest("system", f.c.Slot, f.Server.SystemID, other, rows, last)
}

// digest has 48 bits: it names a finding, it does not protect against somebody who may write to the
// database.
func digest(facts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", facts))
	return hex.EncodeToString(sum[:6])
}

// Name returns the finding with the interval in which rows may be missing and, if it can be
// accepted, with its ID. good is where publication and tables were last in order, as far as this
// process knows; 0: it does not. An error that is no finding stays as it is.
func (f *Found) Name(err error, good pglogrepl.LSN) error {
	stop := unnamed(err)
	if stop == nil {
		return err
	}
	named := *stop
	if from, until := f.Interval(stop.Reason, good); from < until && stop.Rows == nil {
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

// unnamed is the finding in err that has no interval and no ID yet; nil: there is none. What is not
// about slot or publication has neither: it names another command, or another program.
func unnamed(err error) *event.Stop {
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitOperator || stop.Finding != "" {
		return nil
	}
	if stop.Acceptable() || hides(stop.Reason) {
		return stop
	}
	return nil
}

// hides reports whether a finding of this reason is about rows that the server did not send.
func hides(reason string) bool { return reason == "publication" || reason == "table" }

// Interval is where rows may be missing. What the publication or a table hid, it hid since they
// were last in order. Otherwise the interval begins where the last report was recorded. It ends
// where the slot stands now, or at the end of the WAL if there is no slot to go on with. From 0:
// there is no record.
func (f *Found) Interval(reason string, good pglogrepl.LSN) (from, until pglogrepl.LSN) {
	if f.Record == nil || !f.Record.Used {
		return 0, 0
	}
	from = f.Record.Reported
	lasts := f.View != nil && !f.View.Invalidated()
	switch {
	case hides(reason):
		from = max(good, f.Record.Good)
	case lasts:
		return from, f.View.ConfirmedFlush
	}
	if f.View != nil {
		until = f.View.Current
	}
	return from, until
}

// Missing is the finding (exit 3) for a slot that the record has as ready and the server does not
// have.
func Missing(c *source.Config, rec *Record, id Identity) *event.Stop {
	if id.SystemID != "" && rec.OfOther(id) {
		stop := source.SlotLost(c, fmt.Sprintf("slot %q does not exist here: it was read from system %s on timeline %d, and this is system %s on timeline %d; what was committed after %s and not delivered before is only in the outbox table",
			c.Slot, rec.SystemID, rec.Timeline, id.SystemID, id.Timeline, rec.Reported), "")
		stop.Fix = source.MovedFix("cdc-relay recover --same-data, which makes a new slot, and sends what is still in the outbox table and what is deferred; or without what may be missing: ", rec.SystemID != id.SystemID)
		return stop
	}
	return source.SlotLost(c, fmt.Sprintf("slot %q no longer exists; what was committed after %s and not delivered before is only in the outbox table",
		c.Slot, rec.Reported), "")
}

// Recovering is the leader in the record of a slot that recover makes. What it left when it was
// killed is recover's to complete, even if the loss was accepted before.
const Recovering = "cdc-relay recover"

// acceptedLoss reports whether an operator has accepted the loss of a slot that is being made
// again: its gap has no end yet. A start that was cut off then goes on without another word.
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

// Unfinished is the finding (exit 3) for a slot that was lost, and whose creation by a relay was
// cut short. view is what it has left; nil: nothing.
func Unfinished(c *source.Config, view *View) *event.Stop {
	newSlot := ""
	if view != nil {
		newSlot = source.NewSlot
	}
	return source.SlotLost(c, fmt.Sprintf("slot %q was being made again, and that was not completed", c.Slot), newSlot)
}

// refusal is why the next start does not use the slot as it is: refuse, and what the adoption and
// the leader find later. nil: it uses it, or creates what is missing. It changes nothing.
//
// A slot that was moved comes before a publication that was altered, whatever the leader finds
// first: one acceptance is for both, and its gap begins at the last report, which may be below the
// last good check.
func (f *Found) refusal(ctx context.Context, q source.Querier, c *source.Config) error {
	rec, view := f.Record, f.View
	err := refuse(ctx, q, c, f.Server, rec, view)
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

// CannotBeReadOn returns why a new slot is needed in the place of this one; "": none is. A slot of
// another system was made there (by pg_upgrade, say), and its publication has another OID.
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

// TakeoverUnfinished is why a relay does not start a slot whose takeover is not complete.
func TakeoverUnfinished(c *source.Config, rec *Record) *event.Stop {
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("the takeover by slot %q from slot %q is not complete", c.Slot, rec.TookFrom),
		"cdc-relay takeover --from-slot "+rec.TookFrom)
}

// UnknownSlot handles a slot of our name without a record: another program's, or made by hand.
// Nothing shows what its publication hid while the rows in it were committed.
func UnknownSlot(c *source.Config, view *View, id Identity) error {
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

// Judge returns what the next start would end with, named; nil: it uses the slot, or creates it. It
// finds the tables, whose OIDs are in c from then on, and changes nothing.
//
// What only a relay that ran has found, and the database does not show, has an ID of this term: the
// epoch is part of it. Once a relay leads again the ID is not open any more.
func (f *Found) Judge(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (stop *event.Stop, err error) {
	if err = f.Name(f.judge(ctx, pool, c), 0); err != nil && !errors.As(err, &stop) {
		return nil, err
	}
	return stop, nil
}

// judge is Judge without the name.
func (f *Found) judge(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	rec := f.Record
	tables, err := schema.FindTables(ctx, pool, c, firstStart(rec, f.View))
	if err == nil {
		c.Tables = tables
		err = f.refusal(ctx, pool, c)
	}
	if err == nil && rec != nil {
		f.ID = digest(f.ID, rec.Epoch)
	}
	return err
}

// Named is Found.Name for a caller that is not connected, or whose connections are bound to another
// server. The error stays as it is when the database does not answer: then it has FindingID for an
// ID, and `cdc-relay check` says it later.
func Named(ctx context.Context, c source.Config, err error, good pglogrepl.LSN) error {
	stop := unnamed(err)
	if stop == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), source.AnswerTimeout)
	defer cancel()
	f, pool, askErr := examineFresh(ctx, &c)
	if askErr != nil {
		return unknown(stop)
	}
	defer source.ClosePool(pool)
	var judged *event.Stop
	if askErr = f.judge(ctx, pool, &c); askErr != nil && !errors.As(askErr, &judged) {
		return unknown(stop)
	}
	return f.Name(err, good)
}

// examineFresh examines over connections of its own. The caller closes the pool.
func examineFresh(ctx context.Context, c *source.Config) (*Found, *pgxpool.Pool, error) {
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
	var f *Found
	if err == nil {
		f, err = Examine(ctx, pool, c, id)
	}
	if err != nil {
		source.ClosePool(pool)
		return nil, nil, err
	}
	return f, pool, nil
}

// unknown says where the ID is.
func unknown(stop *event.Stop) error {
	if !stop.Acceptable() {
		return stop
	}
	named := *stop
	named.Fix += " (" + event.FindingID + ": `cdc-relay check` says it once PostgreSQL answers)"
	return &named
}

// NextStop is Judge for a caller that is not connected.
func NextStop(ctx context.Context, c source.Config) (*event.Stop, error) {
	f, pool, err := examineFresh(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer source.ClosePool(pool)
	return f.Judge(ctx, pool, &c)
}
