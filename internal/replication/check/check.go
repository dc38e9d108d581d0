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
	k := checker{cfg: &c, pool: pool}
	if !k.checkReached(ctx) {
		return k.list, nil
	}
	for _, question := range []func(context.Context){
		k.checkLogin, k.checkPooler, k.checkWALLevel, k.checkCommitTimes, k.checkEncoding, k.checkReplication, k.checkFreeSlots, k.checkSyncStandby, k.checkConnectionLimits, k.checkObjects, k.checkStandbys, k.checkLargeRows, k.checkGuard,
	} {
		ctx, cancel := context.WithTimeout(ctx, questionBound)
		question(ctx)
		cancel()
	}
	return k.list, nil
}

// questionBound is how long one test may take.
const questionBound = 10 * time.Second

// checkReached asks who and where the relay is; false: PostgreSQL cannot be reached.
func (c *checker) checkReached(ctx context.Context) bool {
	var version string
	err := c.pool.QueryRow(ctx, `SELECT session_user::text, current_database()::text, current_setting('server_version')`).Scan(&c.user, &c.database, &version)
	return c.addResult("postgres", fmt.Sprintf("%s at %s, PostgreSQL %s", c.user, c.database, version), source.OrFatal(c.cfg, err))
}

func (c *checker) checkWALLevel(ctx context.Context) {
	c.addResult("wal_level", "logical", source.CheckServer(ctx, c.pool))
}

// checkCommitTimes finds out by what recover and resend put rows into order.
func (c *checker) checkCommitTimes(ctx context.Context) {
	const name = "commit times"
	flag, err := schema.OrderFlag(ctx, c.pool, c.cfg.Tables)
	if err != nil || flag == "" {
		c.addResult(name, "the server keeps them", err)
		return
	}
	c.orderFlag = flag
	c.addWarning(name, "track_commit_timestamp is off: `recover` and `resend` do not know the order of the commits and need"+flag+", and `events list` does not know when rows were committed",
		"ALTER SYSTEM SET track_commit_timestamp = on, then restart the server; it is known of what is committed from then on")
}

func (c *checker) checkEncoding(ctx context.Context) {
	encoding, err := source.UnconvertibleEncoding(ctx, c.pool)
	if refused := source.CheckEncoding(ctx, c.pool); err == nil && refused == nil && encoding != "" {
		c.addWarning("encoding", fmt.Sprintf("the database has encoding %s: a row with text that PostgreSQL cannot convert to UTF-8 would stop the stream", encoding),
			"let services write with client_encoding UTF8, as most drivers do: such a text cannot come in by it")
	} else {
		c.addResult("encoding", "all text can be sent as UTF-8", cmp.Or(refused, err))
	}
}

func (c *checker) checkSyncStandby(ctx context.Context) {
	c.addResult("synchronous standby", "not a candidate", slot.RefuseSyncStandby(ctx, c.pool, c.cfg))
}

// checkObjects tests schema, record and tables, and then what can only be tested with them.
func (c *checker) checkObjects(ctx context.Context) {
	err := schema.Verify(ctx, c.pool, schema.Trust{})
	var version int
	if err == nil {
		version, err = schema.Version(ctx, c.pool)
	}
	switch {
	case err == nil && version == 0:
		c.addMissing("schema", "cdc_relay does not exist yet", schema.MayCreate(ctx, c.pool))
	case err == nil && version < len(schema.Migrations()):
		c.addOlderSchema(ctx, version)
	default:
		if err == nil {
			err = schema.CheckRights(ctx, c.pool)
		}
		if c.checkSchema(ctx, version, err) {
			c.checkAudit(ctx)
			c.checkReclaim(ctx)
		}
	}
	var rec *slot.Record
	if stop := (*event.Stop)(nil); errors.As(err, &stop) && stop.Code == event.ExitOperator {
		return // nothing in the schema is read
	}
	readable := err == nil
	if err == nil && version > 0 {
		if rec, err = slot.ReadRecord(ctx, c.pool, c.cfg.Slot); err != nil {
			c.addResult("schema", "", err)
			return
		}
	}
	if rec != nil || err == nil && version > 0 {
		if c.found, err = slot.ExamineState(ctx, c.pool, c.cfg, c.serverIdentity(rec)); err != nil {
			c.addResult("schema", "", err)
			return
		}
	}
	if err == nil && version > 0 {
		c.checkUnheld(ctx)
		c.checkGaps(ctx)
	}
	if rec != nil {
		c.checkRetryTable(ctx, cmp.Or(c.id.SystemID, rec.SystemID))
	}
	c.checkMessages(ctx)
	tables, err := schema.FindTables(ctx, c.pool, c.cfg, rec == nil)
	if len(c.cfg.Tables) > 0 && !c.addResult("tables", c.describeTables(ctx, tables)+": the mapping fits", err) {
		return
	}
	for _, t := range tables {
		for _, unused := range t.Unused {
			c.addWarning("tables", fmt.Sprintf("%s: not used, as only a default names it: %s", t, unused), "change the column's type if it is meant")
		}
	}
	c.cfg.Tables = tables
	c.checkSlot(ctx, rec, readable)
}

// addOlderSchema adds the finding that the schema is of an older version of the relay.
func (c *checker) addOlderSchema(ctx context.Context, version int) {
	const name = "schema"
	detail := fmt.Sprintf("the tables of cdc_relay are those of an older version of the relay (version %d, this one has %d)", version, len(schema.Migrations()))
	may, err := schema.MayMigrate(ctx, c.pool)
	switch {
	case err != nil:
		c.addResult(name, "", err)
	case may && c.cfg.Create:
		c.addWarning(name, detail+": the next start brings them up to date", "cdc-relay init")
	case may:
		c.addFailure(name, detail+" and source.create is false", "cdc-relay init")
	default:
		c.addFailure(name, detail+", and this role may not bring them up to date", source.InitHint(c.user))
	}
}

// checkSchema adds the findings about the schema cdc_relay and its owner, and reports whether it
// can be used; err is what is wrong with it. A schema of the relay's own role works, but whoever
// logs in as it can change it.
func (c *checker) checkSchema(ctx context.Context, version int, err error) bool {
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
		return c.addResult(name, detail, err)
	case owner == schema.OwnerRole:
		c.addResult(name, detail, nil)
		if len(members) > 0 {
			c.addWarning("schema owner", fmt.Sprintf("these may become %s, here and in each database of the cluster, and so run code as the relay: %s", owner, strings.Join(members, ", ")),
				"unless they are those who run init: REVOKE "+owner+" FROM "+source.QuoteName(members[0])+", and so on")
		}
		return true
	case super:
		c.addWarning(name, fmt.Sprintf("%s, belongs to superuser %q, who can log in, and not to %s", detail, owner, schema.OwnerRole),
			source.InitHintBy(c.user, "a superuser")+"; this hands it over")
		return true
	}
	c.addWarning(name, fmt.Sprintf("%s, belongs to the relay's own role %q and not to %s: what the relay may change, it could drop", detail, owner, schema.OwnerRole),
		source.InitHintBy(c.user, "a superuser or a role that may hand it over")+"; this hands it over")
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

// checker is one run of the tests, and what they have found so far.
type checker struct {
	cfg  *source.Config
	pool *pgxpool.Pool
	list []Finding

	user, database string           // once reached
	id             slot.Identity    // of the replication connection; zero: there is none
	orderFlag      string           // that recover and resend need; see schema.OrderFlag
	found          *slot.FoundState // nil: the schema could not be read
}

// addResult adds a finding: ok with the detail good, or failed with err, its fix and its ID. It
// reports which.
func (c *checker) addResult(name, good string, err error) bool {
	f := Finding{Name: name, Level: LevelOK, Detail: good}
	if err != nil && c.found != nil {
		err = c.found.NameStop(err, 0)
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
			f.Detail, f.Fix, f.Finding = short.Error(), schema.WithOrder(stop.Fix, c.orderFlag), stop.Finding
		}
	}
	c.list = append(c.list, f)
	return err == nil
}

func (c *checker) addFailure(name, detail, fix string) {
	c.list = append(c.list, Finding{Name: name, Level: LevelFail, Detail: detail, Fix: fix})
}

// warnUnchecked adds a warning if err says that an optional test could not be made. It reports
// whether it did.
func (c *checker) warnUnchecked(name string, err error) bool {
	if err == nil {
		return false
	}
	fix := ""
	if source.SQLState(err) == "42501" {
		fix = "GRANT pg_monitor TO " + source.QuoteName(c.user)
	}
	c.addWarning(name, "cannot be checked: "+source.OneLine(err).Error(), fix)
	return true
}

func (c *checker) addWarning(name, detail, fix string) {
	c.list = append(c.list, Finding{Name: name, Level: LevelWarn, Detail: detail, Fix: fix})
}
