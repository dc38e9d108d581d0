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
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
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
	var was publication.State
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
