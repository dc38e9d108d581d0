// Prepare ensures that publication and slot exist and are ours before a relay starts. settleSlot
// has the table of all cases: what the slot's record says, and what the server has.

package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
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
		first := rec == nil && view == nil || rec != nil && rec.State == StateCreating
		tables, err := publication.FindTables(ctx, pool, c, first)
		if err != nil {
			return err
		}
		c.Tables = tables
		return settleSlot(ctx, pool, stream, c, id, rec, view)
	})
}

// Connect checks what every slot needs, brings the schema up to date and opens the replication
// connection.
func Connect(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (*pgconn.PgConn, Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := RefuseSyncStandby(ctx, pool, c); err != nil {
		return nil, Identity{}, err
	}
	if err := source.CheckServer(ctx, pool); err != nil {
		return nil, Identity{}, err
	}
	if err := schema.Ensure(ctx, pool, c); err != nil {
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
	case rec.State == StateCreating:
		if err := dropUnfinished(ctx, pool, c, id, view); err != nil {
			return err
		}
		return CreateSlot(ctx, pool, stream, c, id, rec.sentBefore(id), true)
	case rec.State == StateAdopt && view == nil:
		return CreateSlot(ctx, pool, stream, c, id, rec.sentBefore(id), false)
	case rec.State == StateAdopt:
		return adoptSlot(ctx, pool, c, id, view, rec.sentBefore(id))
	case rec.State == StateTakeover:
		return TakeoverUnfinished(c, rec)
	case view == nil:
		return Missing(c, rec)
	}
	if err := CheckIdentity(c, rec, view, id); err != nil {
		return err
	}
	_, err := CheckPublication(ctx, pool, c, rec)
	return err
}

// Missing is the finding (exit 3) for a slot that the record has as ready and the server does not
// have.
func Missing(c *source.Config, rec *Record) *event.Stop {
	return source.SlotLost(c, fmt.Sprintf("slot %q no longer exists; what was committed after %s and not delivered before is only in the outbox table",
		c.Slot, rec.Reported), "find and re-send what is missing"+source.AdoptHint(c)+source.NewSlotHint(c))
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
	stop.Fix += fmt.Sprintf(", and to go on where the slot's program stops: cdc-relay takeover --from-slot %s; or, if that program is gone for good, find and re-send what its publication may have hidden; then accept the slot as it is: %s",
		c.Slot, AcceptSQL(c))
	return stop
}

// AcceptSQL accepts a slot of which there is no record, and whose state cannot be set.
func AcceptSQL(c *source.Config) string {
	return fmt.Sprintf("INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation) VALUES (%s, '', 0, %s, 'adopt', 0)",
		source.QuoteText(c.Slot), source.QuoteText(c.Publication))
}
