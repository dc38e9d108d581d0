//go:build testall

package replication

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// The schema's membership is one that can be interrupted too.
func TestSchemaTakenOutAndPutBack(t *testing.T) {
	b := shared(t)
	if !b.since15(`CREATE PUBLICATION p FOR TABLES IN SCHEMA public`) {
		return
	}
	r := b.settledRun("a")
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb)`)
	b.insert("b")
	b.runFix(replicationtest.WantStop(t, r.wait(), event.ExitOperator, "table_replaced"))
	r = b.run()
	r.waitSeen("b")
	r.waitChecked()
	r.endClean()
	b.exec(`ALTER PUBLICATION p DROP TABLES IN SCHEMA public`)
	b.insert("lost")
	b.exec(`ALTER PUBLICATION p ADD TABLES IN SCHEMA public`)
	b.runFix(replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication"))
	b.goesOn("c")
}

// A check that cannot be made is named, once.
func TestCheckThatFails(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.init(setup.InitOptions{URL: owner, Role: role})
	r := b.settledRun("a")
	b.exec(`REVOKE SELECT ON cdc_relay.slots FROM ` + role)
	r.waitChecked() // the slot's part of it
	await.Until(t, "a line", func() bool { return b.logs.FilterMessageSnippet("cannot check publication and tables").Len() > 0 })
	r.waitChecked()
	if lines := b.logs.FilterMessageSnippet("cannot check publication and tables").All(); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["reason"]), "slots") {
		t.Errorf("lines: %v", lines)
	}
	b.exec(`GRANT SELECT ON cdc_relay.slots TO ` + role)
	r.endClean()
}

// A table configured later is remembered from then on, with one line, and one that is not
// configured any more is not asked about.
func TestTableConfiguredLater(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE second (id text PRIMARY KEY, payload jsonb)`)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox, second`)
	b.goesOn("a")
	both, first := b.cfg, b.cfg.Tables
	second := first[0]
	second.Name, second.OID = "second", 0
	both.Tables = []decode.Table{first[0], second}
	b.cfg.Tables = both.Tables
	b.goesOn("b")
	b.goesOn("c")
	if n := b.logs.FilterMessageSnippet("table added").Len(); n != 1 {
		t.Errorf("added %d times", n)
	}
	b.exec(`ALTER PUBLICATION p DROP TABLE second`)
	b.cfg.Tables = first
	b.goesOn("d")
	b.exec(`ALTER PUBLICATION p ADD TABLE second`)
	b.cfg.Tables = both.Tables
	replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication")
}

func TestChangesThatHideNothing(t *testing.T) {
	t.Parallel()
	t.Run("renamed", func(t *testing.T) {
		b := shared(t)
		r := b.settledRun("a")
		b.exec(`ALTER TABLE outbox RENAME TO outgoing`)
		b.exec(`INSERT INTO outgoing VALUES ('b', '{}')`)
		r.waitSeen("b")
		r.waitChecked()
		r.endClean()
	})
	t.Run("renamed, a view in its place", func(t *testing.T) {
		b := shared(t)
		r := b.settledRun("a")
		b.exec(`ALTER TABLE outbox RENAME TO outgoing`)
		b.exec(`CREATE VIEW outbox AS SELECT * FROM outgoing`)
		b.insert("b")
		r.waitSeen("b")
		r.waitChecked()
		r.endClean()
	})
	t.Run("the same tables set again", func(t *testing.T) {
		b := shared(t)
		r := b.settledRun("a")
		b.exec(`ALTER PUBLICATION p SET TABLE outbox`)
		r.waitChecked()
		r.endClean()
		b.goesOn("b")
	})
}

func TestPublicationThatDoesNotFitAtTheFirstStart(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"without inserts":   `CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'update')`,
		"without the table": `CREATE PUBLICATION p`,
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(sql)
			b.runFix(replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication"))
			b.goesOn("a")
		})
	}
}

// What helps when a column was renamed under the relay: both names, since the rows in the WAL have
// the new one for ever.
func TestColumnRenamedWhileRunning(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`ALTER TABLE outbox RENAME payload TO body`)
	b.insert("b")
	stop := replicationtest.WantStop(t, r.wait(), event.ExitMapping, "mapping")
	if !strings.Contains(stop.Fix, "`payload: [payload, body]`") {
		t.Errorf("the fix is another: %s", stop.Fix)
	}
	b.exec(`ALTER TABLE outbox RENAME body TO payload`)
	b.insert("c")
	replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "mapping")
	b.cfg.Tables[0].Mapping.Payload.Any = []string{"payload", "body"}
	r = b.run()
	r.waitSeen("b", "c")
	r.endClean()
}

// Under a profile a column has one name. What the fix says, and docs/operations.md: the rows of
// before go with the old name while the table has it, the ones behind them with the new one, and
// none is passed over.
func TestColumnRenamedUnderAProfile(t *testing.T) {
	b := shared(t)
	mapping := &b.cfg.Tables[0].Mapping
	mapping.Compat = true
	b.settledRun("a").endClean()
	b.insert("b")
	b.exec(`ALTER TABLE outbox RENAME payload TO body`)
	b.insert("c")
	// the table does not have the old name
	replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "mapping")
	mapping.Payload.Any = []string{"body"}
	// the first row does not have the new one
	stop := replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "mapping")
	if !strings.Contains(stop.Fix, "sink.compat.options") || strings.Contains(stop.Fix, "outbox:") || !strings.Contains(stop.What, "columns there: id, payload") {
		t.Errorf("%s; the fix: %s", stop.What, stop.Fix)
	}
	b.exec(`ALTER TABLE outbox RENAME body TO payload`)
	mapping.Payload.Any = []string{"payload"}
	r := b.run()
	// at the first row with the new name
	replicationtest.WantStop(t, r.wait(), event.ExitMapping, "mapping")
	if seen := b.current().Seen(); !slices.Equal(seen, []string{"b"}) {
		t.Errorf("passed: %v", seen)
	}
	b.exec(`ALTER TABLE outbox RENAME payload TO body`)
	mapping.Payload.Any = []string{"body"}
	r = b.run()
	r.waitSeen("c")
	r.endClean()
}

func TestTableMissing(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "table")
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY)`)
	replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "mapping")
	b.exec(`ALTER TABLE outbox ADD COLUMN payload jsonb`)
	b.goesOn("a")
}

func TestMoreChangesThatHideRows(t *testing.T) {
	changesThatHideRows(t, map[string]hidingChange{
		"publication dropped, no row since":    {`DROP PUBLICATION p`, "publication", ""},
		"publication re-created, no row since": {`DROP PUBLICATION p; SELECT pg_logical_emit_message(false, '', ''); CREATE PUBLICATION p FOR TABLE outbox`, "publication", "DROP PUBLICATION IF EXISTS p"},
		"table taken out":                      {`ALTER PUBLICATION p DROP TABLE outbox; INSERT INTO outbox VALUES ('lost', '{}')`, "publication", ""},
		"table re-created":                     {`DROP TABLE outbox; CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb); INSERT INTO outbox VALUES ('lost', '{}')`, "table", ""},
		"table re-created and added": {`DROP TABLE outbox; CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb); INSERT INTO outbox VALUES ('lost', '{}');
			ALTER PUBLICATION p ADD TABLE outbox`, "table", ""},
	})
}

func TestMoreThatWasMadeAgainWhileDown(t *testing.T) {
	recreatedWhileDown(t, map[string]unseenChange{
		"publication":  {`DROP PUBLICATION p; SELECT pg_current_wal_lsn(); CREATE PUBLICATION p FOR TABLE outbox`, "publication", "created again"},
		"table, added": {`DROP TABLE outbox; CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb); INSERT INTO outbox VALUES ('lost', '{}'); ALTER PUBLICATION p ADD TABLE outbox`, "table", "created again"},
	})
}
