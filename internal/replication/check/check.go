// Package check tests the preconditions of the source side, and names a fix for each that fails.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Run tests every precondition of the source side and changes nothing. Each test has a time limit.
// A test that cannot be made is a finding, and the others continue, unless PostgreSQL cannot be
// reached at all.
func Run(ctx context.Context, c source.Config) ([]Finding, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return nil, err
	}
	defer source.ClosePool(pool)
	k := checker{c: &c, pool: pool}
	if !k.reached(ctx) {
		return k.list, nil
	}
	for _, question := range []func(context.Context){
		k.login, k.direct, k.walLevel, k.encoding, k.replication, k.room, k.syncStandby, k.connections, k.objects, k.standbys, k.largeRows, k.guard,
	} {
		ctx, cancel := context.WithTimeout(ctx, questionBound)
		question(ctx)
		cancel()
	}
	return k.list, nil
}

// questionBound is how long one test may take.
const questionBound = 10 * time.Second

func (c *checker) reached(ctx context.Context) bool {
	var version string
	err := c.pool.QueryRow(ctx, `SELECT session_user::text, current_database()::text, current_setting('server_version')`).Scan(&c.user, &c.database, &version)
	return c.add("postgres", fmt.Sprintf("%s at %s, PostgreSQL %s", c.user, c.database, version), source.OrFatal(c.c, err))
}

func (c *checker) walLevel(ctx context.Context) {
	c.add("wal_level", "logical", source.CheckServer(ctx, c.pool))
}

func (c *checker) encoding(ctx context.Context) {
	encoding, err := source.Unconvertible(ctx, c.pool)
	if refused := source.CheckEncoding(ctx, c.pool); err == nil && refused == nil && encoding != "" {
		c.warn("encoding", fmt.Sprintf("the database has encoding %s: a row with text that PostgreSQL cannot convert to UTF-8 would stop the stream", encoding),
			"let services write with client_encoding UTF8, as most drivers do: such a text cannot come in by it")
	} else {
		c.add("encoding", "all text can be sent as UTF-8", cmp.Or(refused, err))
	}
}

func (c *checker) syncStandby(ctx context.Context) {
	c.add("synchronous standby", "not a candidate", slot.RefuseSyncStandby(ctx, c.pool, c.c))
}

func (c *checker) objects(ctx context.Context) {
	err := schema.Verify(ctx, c.pool, schema.Trust{})
	var version int
	if err == nil {
		version, err = schema.Version(ctx, c.pool)
	}
	switch {
	case err == nil && version == 0:
		c.missing("schema", "cdc_relay does not exist yet", schema.MayCreate(ctx, c.pool))
	case err == nil && version < len(schema.Migrations()):
		c.older(ctx, version)
	default:
		if err == nil {
			err = schema.CheckRights(ctx, c.pool)
		}
		if c.schema(ctx, version, err) {
			c.audit(ctx)
		}
	}
	var rec *slot.Record
	if stop := (*event.Stop)(nil); errors.As(err, &stop) && stop.Code == event.ExitOperator {
		return // nothing in the schema is read
	}
	readable := err == nil
	if err == nil && version > 0 {
		if rec, err = slot.ReadRecord(ctx, c.pool, c.c.Slot); err != nil {
			c.add("schema", "", err)
			return
		}
	}
	if rec != nil || err == nil && version > 0 {
		if c.found, err = slot.Examine(ctx, c.pool, c.c, c.server(rec)); err != nil {
			c.add("schema", "", err)
			return
		}
	}
	if err == nil && version > 0 {
		c.unheld(ctx)
		c.gaps(ctx)
	}
	if rec != nil {
		c.retryTable(ctx, cmp.Or(c.id.SystemID, rec.SystemID))
	}
	c.messages(ctx)
	tables, err := schema.FindTables(ctx, c.pool, c.c, rec == nil)
	if len(c.c.Tables) > 0 && !c.add("tables", c.fitting(ctx, tables)+": the mapping fits", err) {
		return
	}
	for _, t := range tables {
		for _, unused := range t.Unused {
			c.warn("tables", fmt.Sprintf("%s: not used, as only a default names it: %s", t, unused), "change the column's type if it is meant")
		}
	}
	c.c.Tables = tables
	c.slot(ctx, rec, readable)
}

// older adds the finding about a schema of an older version of the relay.
func (c *checker) older(ctx context.Context, version int) {
	const name = "schema"
	detail := fmt.Sprintf("the tables of cdc_relay are those of an older version of the relay (version %d, this one has %d)", version, len(schema.Migrations()))
	may, err := schema.MayMigrate(ctx, c.pool)
	switch {
	case err != nil:
		c.add(name, "", err)
	case may && c.c.Create:
		c.warn(name, detail+": the next start brings them up to date", "cdc-relay init")
	case may:
		c.fail(name, detail+" and source.create is false", "cdc-relay init")
	default:
		c.fail(name, detail+", and this role may not bring them up to date", source.InitHint(c.user))
	}
}

// schema adds the finding about the schema cdc_relay: err is what is wrong with it. A schema of the
// relay's own role works, but whoever logs in as it can change it.
func (c *checker) schema(ctx context.Context, version int, err error) bool {
	const name = "schema"
	detail := fmt.Sprintf("cdc_relay, version %d", version)
	var owner string
	var super, login bool
	var members []string
	if err == nil {
		err = c.pool.QueryRow(ctx, `SELECT o.rolname::text, o.rolsuper, o.rolcanlogin,
				array(SELECT m.rolname::text FROM pg_roles m WHERE m.oid <> o.oid AND NOT m.rolsuper AND pg_has_role(m.oid, o.oid, 'MEMBER') ORDER BY 1)
			FROM pg_namespace JOIN pg_roles o ON o.oid = nspowner WHERE nspname = 'cdc_relay'`).Scan(&owner, &super, &login, &members)
	}
	switch {
	case err != nil || super && !login:
		return c.add(name, detail, err)
	case owner == schema.OwnerRole:
		c.add(name, detail, nil)
		if len(members) > 0 {
			c.warn("schema owner", fmt.Sprintf("these may become %s, here and in each database of the cluster, and so run code as the relay: %s", owner, strings.Join(members, ", ")),
				"unless they are those who run init: REVOKE "+owner+" FROM "+source.QuoteName(members[0])+", and so on")
		}
		return true
	case super:
		c.warn(name, fmt.Sprintf("%s, belongs to superuser %q, who can log in, and not to %s", detail, owner, schema.OwnerRole),
			source.InitHint(c.user)+", as a superuser, which hands it over")
		return true
	}
	c.warn(name, fmt.Sprintf("%s, belongs to the relay's own role %q and not to %s: what the relay may change, it could drop", detail, owner, schema.OwnerRole),
		source.InitHint(c.user)+", as a superuser, or as a role that may hand it over")
	return true
}

// Finding is one line of a preflight check.
type Finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, warn or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // to copy
	// the server's own words, when Detail has said what they mean
	Cause string `json:"cause,omitempty"`
	// the ID that `cdc-relay accept` takes
	Finding string `json:"finding,omitempty"`
}

// The levels of a Finding.
const (
	LevelOK   = "ok"
	LevelWarn = "warn"
	LevelFail = "fail"
)

type checker struct {
	c    *source.Config
	pool *pgxpool.Pool
	list []Finding

	user, database string        // once reached
	id             slot.Identity // of the replication connection; zero: there is none
	found          *slot.Found   // nil: the schema could not be read
}

func (c *checker) add(name, good string, err error) bool {
	f := Finding{Name: name, Level: LevelOK, Detail: good}
	if err != nil && c.found != nil {
		err = c.found.Name(err, 0)
	}
	if err != nil {
		f.Level, f.Detail, f.Fix = LevelFail, source.OneLine(err).Error(), cmp.Or(source.FixConnect(err), source.FixAbsent(err))
		var stop *event.Stop
		if errors.As(err, &stop) {
			short := *stop
			short.Fix = ""
			if stop.CauseLast {
				short.Err, f.Cause = nil, source.OneLine(stop.Err).Error()
			}
			f.Detail, f.Fix, f.Finding = short.Error(), stop.Fix, stop.Finding
		}
	}
	c.list = append(c.list, f)
	return err == nil
}

func (c *checker) fail(name, detail, fix string) {
	c.list = append(c.list, Finding{Name: name, Level: LevelFail, Detail: detail, Fix: fix})
}

// warnUnchecked adds a warning if an optional test failed to run, and reports whether it did.
func (c *checker) warnUnchecked(name string, err error) bool {
	if err == nil {
		return false
	}
	fix := ""
	if source.SQLState(err) == "42501" {
		fix = "GRANT pg_monitor TO " + source.QuoteName(c.user)
	}
	c.warn(name, "cannot be checked: "+source.OneLine(err).Error(), fix)
	return true
}

func (c *checker) warn(name, detail, fix string) {
	c.list = append(c.list, Finding{Name: name, Level: LevelWarn, Detail: detail, Fix: fix})
}
