package replication

import (
	"cmp"
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

// Check asks for every precondition of the source side and changes nothing. Each question is bounded; one that can not be
// asked is a finding, and the others go on, unless PostgreSQL is not reached at all.
func Check(ctx context.Context, c Config) ([]Finding, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	pool, err := connectPool(&c)
	if err != nil {
		return nil, err
	}
	defer closePool(pool)
	k := checker{c: &c, pool: pool, countable: countable}
	if !k.reached(ctx) {
		return k.list, nil
	}
	for _, question := range []func(context.Context){
		k.direct, k.walLevel, k.replication, k.room, k.keeping, k.syncStandby, k.commits, k.role, k.connections, k.clock, k.objects, k.vacuum,
	} {
		ctx, cancel := context.WithTimeout(ctx, questionBound)
		question(ctx)
		cancel()
	}
	return k.list, nil
}

// questionBound is how long one of Check's questions may take.
const questionBound = 10 * time.Second

func (k *checker) reached(ctx context.Context) bool {
	var version string
	err := k.pool.QueryRow(ctx, `SELECT session_user::text, current_database()::text, current_setting('server_version')`).Scan(&k.user, &k.database, &version)
	return k.add("postgres", fmt.Sprintf("%s at %s, PostgreSQL %s", k.user, k.database, version), fatalOr(k.c, err))
}

func (k *checker) walLevel(ctx context.Context) {
	k.add("wal_level", "logical", checkServer(ctx, k.pool))
}

func (k *checker) syncStandby(ctx context.Context) {
	k.add("synchronous standby", "not a candidate", refuseSyncStandby(ctx, k.pool, k.c))
}

func fatalOr(c *Config, err error) error {
	if stop := fatalConnect(c, err, false, c.longAgo()); stop != nil {
		return stop
	}
	return err
}

// longAgo is a start so early that no patience is left: commands that ask once do not wait.
func (c *Config) longAgo() time.Time { return time.Time{} }

type checker struct {
	c    *Config
	pool *pgxpool.Pool
	list []Finding

	countable uint64 // bytes of WAL

	user, database string // once reached
	commit         struct {
		value string // of synchronous_commit, for all; "": not asked
		err   error
	}
}

// roleName is the relay's role as SQL.
func (k *checker) roleName() string { return quoteName(k.user) }

func (k *checker) add(name, good string, err error) bool {
	f := Finding{Name: name, Level: LevelOK, Detail: good}
	if err != nil {
		f.Level, f.Detail, f.Mend = LevelFail, oneLine{err}.Error(), cmp.Or(mendConnect(err), mendAbsent(err))
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

func (k *checker) fail(name, detail, mend string) {
	k.list = append(k.list, Finding{Name: name, Level: LevelFail, Detail: detail, Mend: mend})
}

// unasked is the finding of a question whose answer is good to know, and that failed. It reports whether it did.
func (k *checker) unasked(name string, err error) bool {
	if err == nil {
		return false
	}
	mend := ""
	if pgCode(err) == "42501" {
		mend = "GRANT pg_monitor TO " + k.roleName()
	}
	k.warn(name, "could not be asked: "+oneLine{err}.Error(), mend)
	return true
}

func (k *checker) warn(name, detail, mend string) {
	k.list = append(k.list, Finding{Name: name, Level: LevelWarn, Detail: detail, Mend: mend})
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
	if len(k.c.Tables) > 0 && !k.add("tables", k.fitting(ctx, tables)+": the mapping fits", err) {
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
	var sent sends
	there, err := publicationExists(ctx, k.pool, k.c)
	if err == nil && !there && slot == nil && rec == nil {
		k.missing("publication", k.c.Publication+" is not there yet")
	} else {
		if err == nil {
			sent, err = checkPublication(ctx, k.pool, k.c, rec.sends())
		}
		k.add("publication", k.c.Publication, err)
		k.scope(ctx, slot != nil || rec != nil)
		if err == nil {
			k.beside(ctx, sent.after(rec.sends()))
		}
	}
	readable := k.readable(ctx, slot != nil)
	switch {
	case rec != nil && rec.State == stateTakeover:
		k.add("slot", "", notTaken(k.c, rec))
	case slot == nil && rec == nil:
		k.missing("slot", k.c.Slot+" is not there yet")
		if readable {
			k.rows(ctx)
		}
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
		accepted := rec != nil && rec.State == stateAdopt // the next start takes it, whatever it was
		if accepted {
			rec = nil
		}
		err := checkIdentity(k.c, rec, slot, id)
		known := err == nil
		switch {
		case known && rec != nil:
			err = lookAtPosition(ctx, k.pool, k.c, slot)
		case known && slot.ActivePID != 0 && !slot.heldByRelay():
			err = held(k.c, slot)
		}
		k.add("slot", fmt.Sprintf("%s at %s, %s behind, wal_status %s", k.c.Slot, slot.ConfirmedFlush,
			bytesText(uint64(slot.Current)-uint64(slot.ConfirmedFlush)), slot.WALStatus), err)
		switch {
		case !known:
		case rec == nil:
			k.adoption(ctx, slot, sent, accepted)
		case rec.TookUntil != 0 && slot.ActivePID == 0 && slot.ConfirmedFlush <= rec.TookUntil: // no relay has gone on from there yet
			k.twice(ctx, slot, rec.TookUntil, sent)
		}
		k.tookOver(ctx, rec)
	}
}

// rows says beforehand what the first start would ask.
func (k *checker) rows(ctx context.Context) {
	for _, t := range k.c.Tables {
		var some bool
		if err := k.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+quoteTable(t)+")").Scan(&some); err != nil {
			k.add("rows", "", fmt.Errorf("read %s.%s: %w", t.Schema, t.Name, err))
			return
		}
		if some {
			k.add("rows", "", &outbox.Stop{
				What: fmt.Sprintf("%s.%s already has rows; a new slot sends only what is committed from then on", t.Schema, t.Name),
				Mend: "cdc-relay init --no-backfill, which leaves these rows unsent; or empty the table",
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
	mend := "cdc-relay init"
	if name != "schema" {
		mend = correctName(name)
	}
	k.fail(name, detail+" and source.create is false", mend)
}

// correctName is the mend for a slot or publication that is named in a configuration that must find it. To make one would be to
// begin with what is committed from then on, and to leave behind what waits in the one that was meant.
func correctName(what string) string {
	names := map[string]string{"slot": "SELECT slot_name, plugin, database FROM pg_replication_slots", "publication": "SELECT pubname FROM pg_publication"}
	return fmt.Sprintf("correct source.%s: %s; or state source.create: true, to begin with what is committed from now on", what, names[what])
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
