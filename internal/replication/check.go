package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Finding is one line of a preflight check.
type Finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, warn or fail
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"` // to copy
}

// The levels of a Finding.
const (
	LevelOK   = "ok"
	LevelWarn = "warn"
	LevelFail = "fail"
)

// Check asks for every precondition of the source side and changes nothing. It stops early only where nothing further
// can be asked.
func Check(ctx context.Context, c Config) ([]Finding, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	pool, err := connectPool(&c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	k := checker{c: &c, pool: pool}
	var name string
	err = pool.QueryRow(ctx, `SELECT current_user || ' at ' || current_database() || ', PostgreSQL ' || current_setting('server_version')`).Scan(&name)
	if !k.add("postgres", name, fatalOr(&c, err)) {
		return k.list, nil
	}
	k.add("wal_level", "logical", checkServer(ctx, pool))
	k.replication(ctx)
	k.room(ctx)
	k.add("synchronous standby", "not a candidate", refuseSyncStandby(ctx, pool, &c))
	k.objects(ctx)
	return k.list, nil
}

func fatalOr(c *Config, err error) error {
	if stop := fatalConnect(c, err, false, c.longAgo()); stop != nil {
		return stop
	}
	return err
}

// longAgo is a start so early that no patience is left: commands that answer once do not wait.
func (c *Config) longAgo() time.Time { return time.Now().Add(-2 * passwordPatience) }

type checker struct {
	c    *Config
	pool *pgxpool.Pool
	list []Finding
}

func (k *checker) add(name, good string, err error) bool {
	f := Finding{Name: name, Level: LevelOK, Detail: good}
	if err != nil {
		f.Level, f.Detail, f.Mend = LevelFail, oneLine{err}.Error(), mendConnect(err)
		var stop *outbox.Stop
		if errors.As(err, &stop) {
			short := *stop
			short.Mend = ""
			f.Detail, f.Mend = short.Error(), stop.Mend
		}
	}
	k.list = append(k.list, f)
	return err == nil
}

func (k *checker) warn(name, detail, mend string) {
	k.list = append(k.list, Finding{Name: name, Level: LevelWarn, Detail: detail, Mend: mend})
}

func (k *checker) replication(ctx context.Context) {
	conn, err := connectStream(ctx, k.c)
	if err == nil {
		defer closeStream(conn)
		_, err = identify(ctx, conn)
	}
	k.add("replication connection", "this role may replicate", fatalOr(k.c, err))
}

// room looks for a free slot (when ours is still to be created) and for limits that end slots.
func (k *checker) room(ctx context.Context) {
	var slots, maxSlots int
	var keep string
	err := k.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> $1),
		current_setting('max_replication_slots')::int, current_setting('max_slot_wal_keep_size')`, k.c.Slot).Scan(&slots, &maxSlots, &keep)
	if err == nil && slots >= maxSlots {
		err = createFailed(k.c, fmt.Errorf("%d of %d replication slots are in use", slots, maxSlots))
	}
	k.add("replication slots", fmt.Sprintf("%d of %d used by others", slots, maxSlots), err)
	if err == nil && keep != "-1" {
		k.warn("max_slot_wal_keep_size", "is "+keep+": a slot that falls further behind is lost, and with it what it had not delivered",
			"size it for the longest outage of the broker")
	}
}

func (k *checker) objects(ctx context.Context) {
	version, err := schemaVersion(ctx, k.pool)
	if err == nil && version == 0 {
		k.missing("schema", "cdc_relay is not there yet")
	} else {
		if err == nil {
			err = checkSchemaRights(ctx, k.pool)
		}
		k.add("schema", fmt.Sprintf("cdc_relay, version %d", version), err)
	}
	var rec *record
	if err == nil && version > 0 {
		if rec, err = readRecord(ctx, k.pool, k.c.Slot); err != nil {
			k.add("schema", "", err)
			return
		}
	}
	if rec != nil && version >= sidingVersion {
		k.siding(ctx, rec.SystemID)
	}
	k.messages(ctx)
	tables, err := findTables(ctx, k.pool, k.c, rec == nil)
	if len(k.c.Tables) > 0 && !k.add("tables", namedIn(k.c.Tables)+": the mapping fits", err) {
		return
	}
	k.c.Tables = tables
	k.slot(ctx, rec)
}

// messages says what nobody converts: tables' rows come in UTF-8, messages as they were emitted.
func (k *checker) messages(ctx context.Context) {
	if k.c.Messages.Prefix == "" {
		return
	}
	var encoding string
	err := k.pool.QueryRow(ctx, `SELECT current_setting('server_encoding')`).Scan(&encoding)
	detail := fmt.Sprintf("prefix %q, database encoding %s", k.c.Messages.Prefix, encoding)
	if err == nil && encoding != "UTF8" {
		k.warn("messages", detail+": PostgreSQL does not convert messages, and one that is not UTF-8 is not relayed",
			fmt.Sprintf("SELECT pg_logical_emit_message(true, %s, convert_to(..., 'UTF8'))", quoteText(k.c.Messages.Prefix)))
		return
	}
	k.add("messages", detail, err)
}

func (k *checker) slot(ctx context.Context, rec *record) {
	slot, err := readSlot(ctx, k.pool, k.c.Slot)
	if err != nil {
		k.add("slot", "", err)
		return
	}
	there, err := publicationExists(ctx, k.pool, k.c)
	if err == nil && !there && slot == nil && rec == nil {
		k.missing("publication", k.c.Publication+" is not there yet")
	} else {
		if err == nil {
			_, err = checkPublication(ctx, k.pool, k.c, rec.sends())
		}
		k.add("publication", k.c.Publication, err)
	}
	switch {
	case slot == nil && rec == nil:
		k.missing("slot", k.c.Slot+" is not there yet")
		k.rows(ctx)
	case slot == nil:
		k.add("slot", "", slotLost(k.c, fmt.Sprintf("slot %q does not exist any more", k.c.Slot), "find and re-send what is missing"+adoptHint(k.c)))
	default:
		id := identity{Database: slot.Database}
		if rec != nil {
			id.SystemID, id.Timeline = rec.SystemID, rec.Timeline
		}
		if conn, connErr := connectStream(ctx, k.c); connErr == nil {
			if real, idErr := identify(ctx, conn); idErr == nil {
				id = real
			}
			closeStream(conn)
		}
		err := checkIdentity(k.c, rec, slot, id)
		if err == nil && rec != nil {
			err = lookAtPosition(ctx, k.pool, k.c, slot)
		}
		k.add("slot", fmt.Sprintf("%s at %s, %s behind, wal_status %s", k.c.Slot, slot.ConfirmedFlush,
			bytesText(uint64(slot.Current)-uint64(slot.ConfirmedFlush)), slot.WALStatus), err)
	}
}

// rows says beforehand what the first start would ask.
func (k *checker) rows(ctx context.Context) {
	if err := checkReadable(ctx, k.pool, k.c); err != nil {
		k.add("rows", "", err)
		return
	}
	if k.c.Backfill != nil {
		return
	}
	for _, t := range k.c.Tables {
		var some bool
		if err := k.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+quoteTable(t)+")").Scan(&some); err != nil {
			k.add("rows", "", fmt.Errorf("read %s.%s: %w", t.Schema, t.Name, err))
			return
		}
		if some {
			k.add("rows", "", &outbox.Stop{
				What: fmt.Sprintf("%s.%s already has rows; a new slot sends only what is committed from then on", t.Schema, t.Name),
				Mend: "state source.backfill: false",
			})
			return
		}
	}
}

func (k *checker) missing(name, detail string) {
	if k.c.Create {
		k.warn(name, detail+"; the first start creates it", "cdc-relay init")
		return
	}
	k.list = append(k.list, Finding{Name: name, Level: LevelFail, Detail: detail + " and source.create is false", Mend: "cdc-relay init"})
}

func bytesText(n uint64) string {
	const unit = 1024
	for _, name := range []string{"B", "KiB", "MiB"} {
		if n < unit*10 {
			return fmt.Sprintf("%d %s", n, name)
		}
		n /= unit
	}
	return fmt.Sprintf("%d GiB", n)
}

// View is what the database knows of a relay, for status when the relay itself does not answer.
type View struct {
	Slot     *Slot  // nil: no such slot
	Leader   string // as the last leader named itself; "" when no relay ever led
	State    string // of the slot's row in cdc_relay.slots; "" when there is none
	SystemID string // likewise
}

// Look reads a View of a slot.
func Look(ctx context.Context, pool *pgxpool.Pool, name string) (View, error) {
	slot, err := readSlot(ctx, pool, name)
	if err != nil {
		return View{}, err
	}
	var v View
	if slot != nil {
		public := slot.public()
		v.Slot = &public
	}
	version, err := schemaVersion(ctx, pool)
	if err != nil || version == 0 {
		return v, err
	}
	rec, err := readRecord(ctx, pool, name)
	if rec != nil {
		v.Leader, v.State, v.SystemID = rec.Leader, rec.State, rec.SystemID
	}
	return v, err
}
