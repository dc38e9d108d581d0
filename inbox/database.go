// The service's database: whether it answers, and how long to wait for it.

package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
)

// ready waits until the database can record events, and returns an error for what waiting does not
// cure, such as a missing table.
func (in *Inbox) ready(ctx context.Context) error {
	pause := newBackoff()
	for {
		err := in.probe(ctx)
		switch {
		case err == nil:
			in.database.found()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case class(err, "42P01", "3F000"): // no such table, no such schema
			return fmt.Errorf("find the table of processed messages: %w: create it with inbox.Schema:\n\n%s", err, Schema(in.cfg.Table))
		case class(err, "28", "3D", "42"), errors.Is(err, errForgets): // login, right
			return err
		}
		in.database.lost(err)
		if err := pause.Pause(ctx); err != nil {
			return err
		}
	}
}

// errForgets is a setting with which effects or their records may vanish.
var errForgets = errors.New("the database may forget what is processed")

// probe does what attempt, confirm and Prune do, and rolls it back.
func (in *Inbox) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.Timeout)
	defer cancel()
	tx, err := in.cfg.Pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer rollback(ctx, tx)
	var synchronous, persistence string
	var hashed bool
	if err := tx.QueryRow(ctx, in.sql.Load().settings, quoted(in.cfg.Table)).Scan(&synchronous, &persistence, &hashed); err != nil {
		return fmt.Errorf("read the settings of %s: %w", in.cfg.Table, err)
	}
	in.sql.Store(newStatements(in.cfg.Table, hashed))
	first, err := in.record(ctx, tx, "", nil)
	switch {
	case err != nil:
		return err
	case !first: // each message would be a duplicate
		return fmt.Errorf("%w: %s does not take a row: has it a trigger or a rule? Make it as inbox.Schema does", errForgets, in.cfg.Table)
	}
	// These show that the rights are there. The second is of no rows.
	if _, err := tx.Exec(ctx, in.sql.Load().recorded, in.cfg.Service, "", []byte{}); err != nil {
		return fmt.Errorf("read an event in %s: %w", in.cfg.Table, err)
	}
	if _, err := tx.Exec(ctx, in.sql.Load().prune, in.cfg.Service, in.cfg.Keep.Seconds(), 0); err != nil {
		return fmt.Errorf("delete old rows of %s: %w", in.cfg.Table, err)
	}
	switch {
	case synchronous == "off":
		return fmt.Errorf("%w: synchronous_commit is off: a crash of the server would undo effects whose messages are acknowledged. Set it to on for this database or role", errForgets)
	case persistence != "p":
		return fmt.Errorf("%w: %s is not logged: a crash of the server would empty it. ALTER TABLE %s SET LOGGED", errForgets, in.cfg.Table, quoted(in.cfg.Table))
	}
	return nil
}

// record records an event as processed by the transaction, and returns whether it was not before.
// It waits while another transaction has recorded it and has not ended.
func (in *Inbox) record(ctx context.Context, tx pgx.Tx, id string, content []byte) (first bool, err error) {
	idle := strconv.FormatInt((in.cfg.Timeout + overtime).Milliseconds(), 10)
	tag, err := tx.Exec(ctx, in.sql.Load().record, in.cfg.Service, id, content, idle)
	if class(err, "25006") { // the server is a standby now, a new connection may find another one
		_ = tx.Conn().Close(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("record an event in %s: %w", in.cfg.Table, err)
	}
	return tag.RowsAffected() == 1, nil
}

// availability says whether the database records events: in the log and in a metric.
type availability struct {
	journal *wait.Journal
	up      prometheus.Gauge
}

func newAvailability(log *slog.Logger, up prometheus.Gauge) *availability {
	return &availability{wait.NewJournal(log, "the database does not record events, processing waits", "the database records events again"), up}
}

func (a *availability) lost(err error) {
	a.up.Set(0)
	a.journal.Failed(err)
}

func (a *availability) found() {
	a.up.Set(1)
	a.journal.Works()
}

// newBackoff makes the pauses of a message that waits for the database.
func newBackoff() wait.Backoff { return wait.Backoff{Max: 5 * time.Second} }

// rollback ends a transaction that was not committed. When it cannot, pgx has closed the
// connection, and the server rolls back.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) //nolint:errcheck // then the connection is closed
}
