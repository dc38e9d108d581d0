package replication

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// asRole is a bench whose relay is a role that may do what the attributes say, and nothing else.
func asRole(t *testing.T, attributes string) (b *bench, role, owner string) {
	t.Helper()
	t.Parallel()
	role, as := newRole(t, attributes)
	b = newBench(t, servers.OwnPostgres(t).Database(t))
	b.cfg.URL = as(b.url)
	return b, role, b.url
}

func (b *bench) init(opt setup.InitOptions) {
	b.t.Helper()
	// as long as a slot takes that waits for other tests
	await.Must(b.t, setup.Init(await.Context(b.t), b.cfg, opt))
}

// wantCount compares how many slots, publications and schemas of ours there are.
func (b *bench) wantCount(want string) {
	b.t.Helper()
	b.wantText(want, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1) || ' slots, '
		|| (SELECT count(*) FROM pg_publication) || ' publications, '
		|| (SELECT count(*) FROM pg_namespace WHERE nspname = 'cdc_relay') || ' schemas'`, b.cfg.Slot)
}

func TestSmallestRole(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.wantStop(b.run().wait(), event.ExitFailure, "schema", "cdc-relay init --no-slot --url", "--role")
	for range 2 { // it may be run any number of times
		b.init(setup.InitOptions{URL: owner, Role: role})
	}
	if check.RelayRuns(await.Context(t), b.cfg) {
		t.Error("check sees a relay before one runs")
	}
	b.goesOn("a")
	b.init(setup.InitOptions{URL: owner, Role: role})
	b.goesOn("b")
	b.wantCount("1 slots, 1 publications, 1 schemas")
	// Without one right everything works, but space is kept. Both commands say so.
	b.exec("REVOKE TRUNCATE ON cdc_relay.retry FROM " + role)
	if err := setup.Init(await.Context(t), b.cfg, setup.InitOptions{}); err == nil || !strings.Contains(err.Error(), "lacks rights") {
		t.Errorf("init of a role that may not truncate: %v", err)
	}
	b.goesOn("may not truncate")
	b.fixed(nil, b.wantLine(check.LevelWarn, "retry table", "keeps its space"))
	await.Must(t, setup.Init(await.Context(t), b.cfg, setup.InitOptions{}))
	// The role that may do little can still be stood by behind, and take over.
	first := b.settledRun("c")
	second := b.another().run()
	second.waitPhase(slot.Standby)
	if !check.RelayRuns(await.Context(t), b.cfg) {
		t.Error("check does not see the relay")
	}
	first.endClean()
	second.waitPhase(slot.Streaming)
	second.endClean()
}

// A database of the version before: a role that may not change the schema names init, which brings
// it up to this version with the rights on what is new. Until then check says so, and knows the
// slot.
func TestUpgrade(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.init(setup.InitOptions{URL: owner, Role: role})
	b.settledRun("before").endClean()
	own := b.cfg.URL
	b.downgrade()
	b.wantFinding("schema", "are those of an older version of the relay (version 1, this one has 2), and this role may not bring", "cdc-relay init")
	b.wantLine(check.LevelOK, "slot", b.cfg.Slot)
	b.cfg.URL = owner
	b.wantLine(check.LevelWarn, "schema", "older version of the relay", "the next start brings them up to date")
	b.wantLine(check.LevelOK, "slot", b.cfg.Slot)
	b.cfg.URL = own
	b.wantStop(b.run().wait(), event.ExitFailure, "schema")
	b.init(setup.InitOptions{URL: owner, Role: role})
	b.goesOn("a")
}

// A schema of another version of the relay, whose number is the same, ends the relay.
func TestSchemaOfAnotherVersion(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	b.exec(`ALTER TABLE cdc_relay.progress RENAME good TO checked`)
	b.wantStop(b.run().wait(), event.ExitFailure, "schema")
	b.exec(`ALTER TABLE cdc_relay.progress RENAME checked TO good`)
	b.goesOn("b")
}

// downgrade makes the schema that of the first version.
func (b *bench) downgrade() {
	b.t.Helper()
	b.exec(`DO $$ DECLARE r record; BEGIN
		FOR r IN SELECT oid::regprocedure AS name FROM pg_proc WHERE pronamespace = 'cdc_relay'::regnamespace
		LOOP EXECUTE 'DROP FUNCTION ' || r.name; END LOOP; END $$`)
	b.exec(`DELETE FROM cdc_relay.migration WHERE version > 1`)
}

// wantFinding wants check to fail one line by that name, with these texts in its detail and its fix
// it.
func (b *bench) wantFinding(name, words, fix string) {
	b.t.Helper()
	list, err := check.Run(await.Context(b.t), b.cfg)
	await.Must(b.t, err)
	if !slices.ContainsFunc(list, func(f check.Finding) bool {
		return f.Name == name && f.Level == check.LevelFail && strings.Contains(f.Detail, words) && strings.Contains(f.Fix, fix)
	}) {
		b.t.Errorf("check does not find %q: %+v", words, list)
	}
}

// waitNoWalsender returns when the walsenders of this database have ended.
func (b *bench) waitNoWalsender() {
	b.t.Helper()
	b.waitWalsenders(0)
}

func (b *bench) waitWalsenders(n int) {
	b.t.Helper()
	await.Until(b.t, "walsenders to end", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database()`) == strconv.Itoa(n)
	})
}

func TestInitMakesTheOutboxTable(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.cfg.Tables[0].Mapping = decode.Mapping{
		ID: decode.Names{Any: []string{"id"}}, Aggregate: decode.Names{Any: []string{"aggregatetype"}}, Key: decode.Names{Any: []string{"aggregateid"}},
		Type: decode.Names{Any: []string{"type"}}, Payload: decode.Names{Any: []string{"payload"}}, Headers: decode.Names{Any: []string{"headers"}},
		Traceparent: decode.Names{Any: []string{"traceparent"}}, Timestamp: decode.Names{Any: []string{"created_at"}},
	}
	b.init(setup.InitOptions{OutboxTable: true})
	b.init(setup.InitOptions{OutboxTable: true})
	r := b.streaming()
	b.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES ('8f2d3c1a-0000-4000-8000-000000000001', 'order', '1', 'placed')`)
	r.waitSeen("8f2d3c1a-0000-4000-8000-000000000001")
	r.endClean()
}

// The first start's question is asked by init as well.
func TestInitRefusesRowsThatNobodyAskedAbout(t *testing.T) {
	b := shared(t)
	b.insert("before")
	err := setup.Init(await.Context(t), b.cfg, setup.InitOptions{})
	b.wantStop(err, event.ExitUsage, "backfill")
	b.wantCount("0 slots, 1 publications, 1 schemas")
}

// The SQL that init prints does what init does, for a role that may nothing else.
func TestPrintedInitIsEnough(t *testing.T) {
	b, role, _ := asRole(t, "")
	var sql strings.Builder
	await.Must(t, setup.PrintInit(&sql, b.cfg, setup.InitOptions{OutboxTable: true, Role: role}))
	// psql sends statement by statement; one message is one transaction, in which a slot must come
	// first.
	objects, slot, found := strings.Cut(sql.String(), "-- A slot created by hand")
	if !found {
		t.Fatalf("no slot in:\n%s", sql.String())
	}
	b.exec(objects)
	b.exec("--" + slot)
	b.cfg.Create = false
	b.goesOn("a")
	b.goesOn("b")
}

func TestTeardown(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	teardown := func() error { return setup.Teardown(await.Context(t), b.cfg, false) }
	b.wantStop(teardown(), event.ExitFailure, "slot_active")
	r.endClean()
	b.waitFree()
	for range 2 { // there is nothing left the second time
		await.Must(t, teardown())
		b.wantCount("0 slots, 0 publications, 0 schemas")
	}
	b.exec(`TRUNCATE outbox`)
	b.goesOn("b")
}

// Rows of the retry table are the only copy of their events when the outbox was emptied: teardown
// asks for --force before it drops them, check names those that nobody sends, and what another
// slot's relay needs stays.
func TestTeardownKeepsUndeliveredEvents(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	other := b.another()
	other.cfg.Slot += "_other"
	other.cfg.NoBackfill = true
	other.goesOn("b")
	b.waitNoWalsender()
	for i, slot := range []string{b.cfg.Slot, other.cfg.Slot} {
		b.exec(`INSERT INTO cdc_relay.retry (slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered,
			attempts, bytes, class, reason, error, destination, commit_time, event_time, payload_kind)
			VALUES ($1, '4711', 1, '0/1', 0, $2, 1, 1, 1, 1, true, true, 0, 0, '', '', '', '', now(), now(), 0)`, slot, i)
		b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason) VALUES ($1, '4711', 1, 'x', 'slot_lost')`, slot)
	}
	if f := b.wantLine(check.LevelWarn, "deferred events", "system 4711 (1 deferred, 0 dead letters)"); strings.Contains(f.Fix, "DELETE") {
		t.Errorf("the fix deletes what may be the only copy: %s", f.Fix)
	}
	teardown := func(force bool) error { return setup.Teardown(await.Context(t), b.cfg, force) }
	b.wantStop(teardown(false), event.ExitFailure, "undelivered")
	b.exec(`INSERT INTO cdc_relay.audit (slot, system_id, action, n, why, result) VALUES ($1, '4711', 'discard', 1, '', '')`, b.cfg.Slot)
	await.Must(t, teardown(true))
	// what was done stays known
	b.wantText("1", `SELECT count(*)::text FROM cdc_relay.audit WHERE slot = $1`, b.cfg.Slot)
	for _, table := range []string{"retry", "gap"} {
		if left := b.text(`SELECT string_agg(slot, ' ') FROM cdc_relay.` + table); left != other.cfg.Slot {
			t.Errorf("rows of %q are left in %s", left, table)
		}
	}
	other.goesOn("c")
	other.waitNoWalsender()
	await.Must(t, setup.Teardown(await.Context(t), other.cfg, true))
	b.wantCount("0 slots, 0 publications, 0 schemas")
}
