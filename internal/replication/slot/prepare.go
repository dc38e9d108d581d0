// Prepare ensures that publication and slot exist and are ours before a relay starts. settleSlot
// has the table of all cases: what the slot's record says, and what the server has.

package slot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Prepare makes sure that publication and slot exist and are ours, creating them on the first
// start, and fills in the OIDs of the tables. `init` calls it, and `run` does before it acquires
// the slot.
//
// Creation happens under an advisory lock of a session, which a crash releases: a record in state
// creating while the lock is free was left by a crash, and its slot may have rows before it that
// were never counted; it is created again.
//
// Each step but the creation itself, which may take long, is bounded: a server may stop answering
// in the middle.
func Prepare(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	stream, id, err := Connect(ctx, pool, c)
	if err != nil {
		return err
	}
	defer source.CloseStream(stream)
	return Locked(ctx, pool, c, func(ctx context.Context) error {
		rec, view, err := ReadBoth(ctx, pool, c.Slot)
		if err != nil {
			return err
		}
		first := rec == nil && view == nil || rec != nil && rec.State == StateCreating && !rec.Used
		tables, err := publication.FindTables(ctx, pool, c, first)
		if err != nil {
			return err
		}
		c.Tables = tables
		for _, t := range tables {
			for _, unused := range t.Unused {
				c.Log.Warn("a column that only a default names is not used", zap.Stringer("table", t), zap.String("column", unused))
			}
		}
		return settleSlot(ctx, pool, stream, c, id, rec, view)
	})
}

// Connect checks what every slot needs, brings the schema up to date and opens the replication
// connection.
func Connect(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (*pgconn.PgConn, Identity, error) {
	patient := ctx
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := RefuseSyncStandby(ctx, pool, c); err != nil {
		return nil, Identity{}, err
	}
	if err := source.CheckServer(ctx, pool); err != nil {
		return nil, Identity{}, err
	}
	if err := source.CheckGuard(ctx, pool, c.Guard); err != nil {
		return nil, Identity{}, err
	}
	if err := source.CheckFailoverSlot(ctx, pool, c); err != nil {
		return nil, Identity{}, err
	}
	// not bounded: an index of a large retry table takes its time
	if err := schema.Ensure(patient, pool, c); err != nil {
		return nil, Identity{}, err
	}
	stream, err := source.ConnectStream(ctx, c)
	if err != nil {
		return nil, Identity{}, err
	}
	id, err := Identify(ctx, stream)
	if err != nil {
		source.CloseStream(stream)
		return nil, Identity{}, err
	}
	c.Primary.Set(source.ConnectedServer(stream).Server)
	return stream, id, nil
}

const connectTimeout = time.Minute

// settleSlot brings the slot into state ready or returns why it cannot: the table of all cases.
func settleSlot(ctx context.Context, pool *pgxpool.Pool, stream *pgconn.PgConn, c *source.Config, id Identity, rec *Record, view *View) error {
	switch {
	case rec == nil && view == nil:
		return CreateSlot(ctx, pool, stream, c, id, publication.State{}, true)
	case rec == nil:
		return UnknownSlot(c, view, id)
	}
	was, err := rec.SentBefore(ctx, pool, id)
	if err != nil {
		return err
	}
	switch {
	case rec.State == StateCreating:
		accepted, err := acceptedLoss(ctx, pool, c, rec)
		switch {
		case err != nil:
			return err
		case rec.Used && !accepted:
			return Unfinished(c, view)
		}
		if err := dropUnfinished(ctx, pool, c, id, view); err != nil {
			return err
		}
		return CreateSlot(ctx, pool, stream, c, id, was, !accepted)
	case rec.State == StateAdopt && rec.OfOther(id):
		return acceptedElsewhere(c, rec, view, id)
	case rec.State == StateAdopt && view == nil:
		return CreateSlot(ctx, pool, stream, c, id, was, false)
	case rec.State == StateAdopt:
		return adoptSlot(ctx, pool, c, id, view, was)
	case rec.State == StateTakeover:
		return TakeoverUnfinished(c, rec)
	case view == nil:
		return Missing(c, rec, id)
	}
	if err := CheckUse(ctx, pool, c, rec, view, id); err != nil {
		return err
	}
	_, err = CheckPublication(ctx, pool, c, rec)
	if err == nil && rec.PromotedOn(id) {
		err = goOn(ctx, pool, c, rec, view, id)
	}
	return err
}
