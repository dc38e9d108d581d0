// The row of an event that lacks values: it is read when an operator replays the event.

package tablerows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// ReadRow reads the row of an event of which values are left out, as it is in its table now, and
// makes the whole event of it, with the position and commit time of the former. The row is in
// memory two to four times meanwhile: that is what an operator has asked for.
//
// why: there is no such event, or it cannot be told which one it is, until somebody changes
// something. An error may pass.
func ReadRow(ctx context.Context, pool *pgxpool.Pool, c source.Config, of *event.Event) (ev *event.Event, why string, err error) {
	w := wanted{pool: pool, c: &c, of: of}
	ctx, cancel := context.WithTimeout(ctx, w.patience()+source.AnswerTimeout)
	defer cancel()
	err = w.read(ctx)
	var no cannot
	var stop *event.Stop
	switch state := source.SQLState(err); {
	case err == nil:
		return w.event, "", nil
	case errors.As(err, &no):
		return nil, string(no), nil
	case errors.As(err, &stop):
		return nil, stop.What, nil
	case state == "42501":
		return nil, fmt.Sprintf("the relay may not read %s: GRANT SELECT ON %s TO its role, and replay it again", of.LeftOut.Table, w.quoted()), nil
	case state == "" || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53") || strings.HasPrefix(state, "57P"):
		return nil, "", fmt.Errorf("read a row of %s: %w", of.LeftOut.Table, err)
	}
	return nil, fmt.Sprintf("its row cannot be read from %s: %s", of.LeftOut.Table, source.OneLine(err)), nil
}

// cannot is why an event cannot be made of a row.
type cannot string

func (c cannot) Error() string { return string(c) }

// wanted is the row that is read.
type wanted struct {
	pool   *pgxpool.Pool
	c      *source.Config
	of     *event.Event
	table  Table
	insert []byte // the frame of the row
	event  *event.Event
}

func (w *wanted) quoted() string { return source.QuoteTable(w.table.Table) }

// patience is the statement_timeout for the row, by its size: as large rows of the retry table have
// it.
func (w *wanted) patience() time.Duration {
	return 15*time.Second + time.Duration(w.of.LeftOut.Bytes/(5<<20))*time.Second
}

func (w *wanted) read(ctx context.Context) error {
	switch {
	case w.of.LeftOut.Table == "":
		return cannot("it was a logical message, which is in no table: emit it again, and discard this dead letter")
	case len(w.of.ID) == 0:
		return cannot("its id is not known (NULL, or itself too large): insert the row again, and discard this dead letter")
	}
	if err := w.findTable(ctx); err != nil {
		return err
	}
	condition, err := w.conditionSQL(ctx)
	if err != nil {
		return err
	}
	err = tableread.Read(ctx, w.pool, w.quoted(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = "+strconv.FormatInt(w.patience().Milliseconds(), 10)); err != nil {
			return err
		}
		var found int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+w.quoted()+" t WHERE "+condition+" LIMIT 2) x").Scan(&found); err != nil {
			return err
		}
		switch found {
		case 0:
			return w.gone()
		case 1:
			return w.fetch(ctx, tx, condition)
		}
		return cannot(fmt.Sprintf("several rows of %s have this id: it cannot be told which one it is", w.of.LeftOut.Table))
	})
	if refusal, refused := tableread.IsRefusal(err); refused {
		return cannot(refusal.Error() + ": " + refusal.Fix)
	}
	if err != nil {
		return err
	}
	return w.decode(ctx)
}

func (w *wanted) gone() error {
	return cannot(fmt.Sprintf("the row is no longer in %s: insert it again, and discard this dead letter", w.of.LeftOut.Table))
}

// findTable finds the table among the configured ones.
func (w *wanted) findTable(ctx context.Context) error {
	for _, t := range w.c.Tables {
		if t.String() != w.of.LeftOut.Table {
			continue
		}
		one := *w.c
		one.Tables = []decode.Table{t}
		w.table.Table = t
		var err error
		if one.Tables, err = publication.FindTables(ctx, w.pool, &one, false); err != nil {
			return err
		}
		w.table, err = Describe(ctx, w.pool, w.c, one.Tables[0])
		return err
	}
	return cannot(fmt.Sprintf("table %s is not in source.tables: its row cannot be read", w.of.LeftOut.Table))
}

// conditionSQL is the condition that a row has the id, under any of the names that an id may have.
func (w *wanted) conditionSQL(ctx context.Context) (string, error) {
	part, err := FindPart(ctx, w.pool, w.table.Table, w.table.Mapping.ID.Any)
	if own := (*NotOwn)(nil); errors.As(err, &own) {
		return "", cannot("its row is not searched: " + own.Error())
	}
	return part.IsSQL(string(w.of.ID)), err
}

// fetch reads the row as its text is stored, as in the stream, and makes a frame of it.
func (w *wanted) fetch(ctx context.Context, tx pgx.Tx, condition string) error {
	list := make([]string, len(w.table.Columns))
	for i, c := range w.table.Columns {
		list[i] = "t." + source.QuoteName(c.Name)
	}
	declare := "DECLARE left_out NO SCROLL CURSOR FOR SELECT " + strings.Join(list, ", ") + " FROM " + w.quoted() + " t WHERE " + condition + " LIMIT 1"
	if _, err := tx.Exec(ctx, declare); err != nil {
		return err
	}
	conn := tx.Conn().PgConn()
	utf8 := conn.ParameterStatus("server_encoding") == "UTF8"
	if !utf8 {
		if _, err := tx.Exec(ctx, "SET LOCAL client_encoding = 'SQL_ASCII'"); err != nil {
			return err
		}
	}
	result := conn.Exec(ctx, "FETCH ALL FROM left_out")
	if result.NextResult() {
		if rows := result.ResultReader(); rows.NextRow() {
			w.insert = InsertFrame(nil, w.table.OID, rows.Values(), nil)
		}
	}
	if err := result.Close(); err != nil {
		return err
	}
	if w.insert == nil { // it was deleted after it was counted
		return w.gone()
	}
	if !utf8 {
		_, err := tx.Exec(ctx, "SET LOCAL client_encoding = 'UTF8'")
		return err
	}
	return nil
}

// decode makes the event.
func (w *wanted) decode(ctx context.Context) error {
	decoder, err := NewDecoder(ctx, w.pool, w.c, []Table{w.table})
	if err != nil {
		return err
	}
	var msg decode.Message
	pos := w.of.Position
	if err := decoder.Decode(BeginFrame(nil, pos.Commit, w.of.CommitTime.UnixMicro()), &msg); err != nil {
		return err
	}
	decoder.SetIndex(pos.Index)
	if err := decoder.Decode(w.insert, &msg); err != nil {
		return err
	}
	switch {
	case msg.Kind != decode.Row:
		return fmt.Errorf("a row of %s was not taken for an event", w.table)
	case msg.Event.Fault != nil:
		return cannot("its row cannot be read as an event: " + msg.Event.Fault.Error())
	case !bytes.Equal(msg.Event.ID, w.of.ID):
		return w.gone()
	}
	w.event = msg.Event // the decoder's, which nobody else has
	return nil
}
