//go:build testall

package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

func TestTakeoverIsRefused(t *testing.T) {
	type refusal struct {
		prepare func(b *bench, o *otherTool)
		code    int
		words   string
	}
	each(t, map[string]refusal{
		"its own slot":      {func(b *bench, o *otherTool) { o.slot = b.cfg.Slot }, event.ExitUsage, "choose another source.slot"},
		"no such slot":      {func(b *bench, o *otherTool) { o.slot = "none" }, event.ExitUsage, "does not exist"},
		"a relay's already": {func(b *bench, o *otherTool) { b.goesOn("a") }, event.ExitUsage, "is already used by a relay"},
		"another's place": {func(b *bench, o *otherTool) {
			_ = b.now(o)
			o.slot += "2"
			b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, o.slot)
		}, event.ExitUsage, "replaces another slot"},
		"taken by another relay": {func(b *bench, o *otherTool) {
			_ = b.now(o)
			b.cfg.Slot += "_second"
		}, event.ExitUsage, "already"},
		"from a relay": {func(b *bench, o *otherTool) {
			b.goesOn("a")
			o.slot = b.cfg.Slot
			b.cfg.Slot += "_second"
		}, event.ExitUsage, "its deferred events"},
		"a position beyond the WAL": {func(b *bench, o *otherTool) {
			_ = b.now(o)
			o.start()
			o.confirmTo(0xFFFFFFF000000000)
			o.kill()
		}, event.ExitOperator, "cannot be continued"},
		"a physical slot": {func(b *bench, o *otherTool) {
			o.slot += "_p"
			b.exec(`SELECT pg_create_physical_replication_slot($1)`, o.slot)
			b.t.Cleanup(func() { b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot) })
		}, event.ExitOperator, "physical"},
		"another database's": {func(b *bench, o *otherTool) {
			b.createSlotElsewhere()
			o.slot = b.cfg.Slot
			b.cfg.Slot += "_ours"
		}, event.ExitOperator, "name a logical slot of database"},
		"another publication": {func(b *bench, o *otherTool) {
			_ = b.now(o)
			b.cfg.Publication = "q"
		}, event.ExitOperator, "began with publication"},
		"an altered publication": {func(b *bench, o *otherTool) {
			o.start()
			_ = b.now(o)
			b.exec(`ALTER PUBLICATION p SET (publish = '')`)
			b.insert("hidden")
			b.exec(`ALTER PUBLICATION p SET (publish = 'insert')`)
			o.waitSeen("hidden")
			o.confirm()
			o.kill()
			b.waitNoWalsenderOf(o.slot)
		}, event.ExitOperator, "was altered"},
	}, func(t *testing.T, b *bench, test refusal) {
		o := b.newTool()
		test.prepare(b, o)
		err := b.now(o)
		var stop *event.Stop
		if !errors.As(err, &stop) || stop.Code != test.code || !strings.Contains(stop.What+stop.Fix, test.words) {
			t.Errorf("got %v, want code %d with %q", err, test.code, test.words)
		}
	})
}

func TestTakeoverAsksForThePublicationFirst(t *testing.T) {
	b := shared(t)
	// the schema is there after that
	b.wantStop(b.now(&otherTool{b: b, slot: "nobodys"}), event.ExitUsage, "usage")
	o := b.newTool()
	b.cfg.Create = false
	b.exec(`CREATE PUBLICATION p`)
	b.runFix(b.wantStop(b.now(o), event.ExitOperator, "publication"))
	b.wantStop(b.now(o), event.ExitOperator, "takeover") // begun
}

// Debezium has just started for the first time: its publication and its slot are new, and there is
// an older slot on the server, which holds back the catalog_xmin of every newer one. The relay
// replaces it at once, with a publication of its own or with Debezium's, whatever that has: all
// tables or some, all operations, tables that are nobody's here, among them those of heartbeats and
// signals. Rows come in their order, also those that were deleted in the transaction that inserted
// them.
func TestSlotOfDebezium(t *testing.T) {
	t.Parallel()
	const filtered = `FOR TABLE outbox, debezium_heartbeat, debezium_signal, orders`
	for name, c := range map[string]struct{ publication, readWith string }{
		"all_tables":            {`FOR ALL TABLES`, dbzPublication},
		"all_tables, by root":   {`FOR ALL TABLES WITH (publish_via_partition_root = true, publish = 'insert, update, delete')`, dbzPublication},
		"filtered":              {filtered, dbzPublication},
		"filtered, read with p": {filtered, "p"},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.cfg.Publication = c.readWith
			b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, b.cfg.Slot+"_older")
			b.exec(`CREATE TABLE debezium_heartbeat (id int PRIMARY KEY, at timestamptz)`)
			b.exec(`CREATE TABLE debezium_signal (id text PRIMARY KEY, type text, data text)`)
			b.exec(`CREATE TABLE orders (id int PRIMARY KEY, state text)`)
			b.insert("before")
			b.exec(`CREATE PUBLICATION ` + dbzPublication + ` ` + c.publication)
			o := b.newToolOf(dbzPublication)
			b.takePassed(o)
			twice := b.busy("1")
			o.waitSeen(twice[len(twice)-1])
			o.kill()
			want := append(twice, b.busy("2")...)
			b.takeComplete(o)
			b.delivers(want...)
			b.wantSeen(want...)
			if all, _ := o.seen(); !slices.Equal(all, append([]string{"both"}, twice...)) {
				t.Errorf("Debezium has published %v", all)
			}
			b.goesOn("later")
		})
	}
}

func (b *bench) busy(round string) []string {
	b.t.Helper()
	id := func(name string) string { return name + round }
	for _, transaction := range [][]string{
		{`INSERT INTO outbox VALUES ('` + id("plain") + `', '{}')`},
		{`INSERT INTO outbox VALUES ('` + id("gone") + `', '{}')`, `DELETE FROM outbox WHERE id = '` + id("gone") + `'`},
		{
			`INSERT INTO debezium_heartbeat VALUES (1, now()) ON CONFLICT (id) DO UPDATE SET at = now()`,
			`INSERT INTO outbox VALUES ('` + id("among") + `', '{}')`,
			`INSERT INTO debezium_signal VALUES (` + round + `, 'log', '{}')`,
			`INSERT INTO orders VALUES (` + round + `, 'new')`,
			`UPDATE outbox SET payload = '[]' WHERE id = '` + id("plain") + `'`,
		},
		{`UPDATE orders SET state = 'paid'`, `DELETE FROM orders`},
		{`TRUNCATE orders`},
		{`INSERT INTO outbox VALUES ('` + id("last") + `', '{}')`},
	} {
		b.exec(`BEGIN`)
		for _, sql := range transaction {
			b.exec(sql)
		}
		b.exec(`COMMIT`)
	}
	return []string{id("plain"), id("gone"), id("among"), id("last")}
}

// The other program has confirmed up to the end of a commit, at which the next one begins: that one
// is sent, and no other. A server of its own: what other tests write comes between.
func TestTakeoverBetweenCommitsThatAreAdjacent(t *testing.T) {
	b := alone(t)
	o := b.newTool()
	b.takePassed(o)
	second, between := b.adjacentUnread(o)
	o.confirmTo(between)
	o.kill()
	if s := b.takeComplete(o); s.Confirmed != between.String() {
		t.Errorf("it goes on from %s, want %s", s.Confirmed, between)
	}
	b.insert("after")
	b.delivers("after")
	b.wantSeen(second, "after")
}

// adjacentUnread is adjacent without a relay: it returns the second id and the position between the
// two commits.
func (b *bench) adjacentUnread(o *otherTool) (second string, between pglogrepl.LSN) {
	b.t.Helper()
	conns := [2]*pgx.Conn{b.connect(), b.connect()}
	for try := range 200 {
		second = fmt.Sprintf("second %d", try)
		b.commitBoth(conns, fmt.Sprintf("first %d", try), second)
		o.waitSeen(second)
		o.mu.Lock()
		last := o.commits[len(o.commits)-2:]
		o.mu.Unlock()
		if last[0].TransactionEndLSN == last[1].CommitLSN {
			return second, last[1].CommitLSN
		}
	}
	b.t.Fatal("no two commits were adjacent")
	return "", 0
}

// A run of the command may end anywhere; the next one goes on from there.
func TestTakeoverAfterACrashAtEachStep(t *testing.T) {
	each(t, map[string]struct{ before, between func(b *bench, o *otherTool) }{
		"before it knows its position": {before: func(b *bench, o *otherTool) {
			_ = b.now(o)
			b.exec(`UPDATE cdc_relay.slots SET took_until = '0/0'`)
		}},
		"before the copy": {before: func(b *bench, o *otherTool) { _ = b.now(o) }},
		"after the copy":  {between: func(b *bench, o *otherTool) { b.copySlot(o) }},
		"after the copy, and the other program has gone on": {between: func(b *bench, o *otherTool) {
			b.copySlot(o)
			o.start()
			o.waitSeen("twice")
			o.confirm()
			o.kill()
			b.waitNoWalsenderOf(o.slot)
		}},
	}, func(t *testing.T, b *bench, crash struct{ before, between func(b *bench, o *otherTool) }) {
		o := b.newTool()
		b.insert("theirs")
		if crash.before != nil {
			crash.before(b, o)
			b.wantStop(b.run().wait(), event.ExitOperator, "takeover")
		}
		b.takePassed(o)
		b.insert("twice")
		o.waitSeen("twice")
		o.kill()
		b.waitNoWalsenderOf(o.slot)
		if crash.between != nil {
			crash.between(b, o)
			b.wantStop(b.run().wait(), event.ExitOperator, "takeover")
		}
		b.takeComplete(o)
		b.goesOn("after")
		b.wantSeen("twice", "after")
		if all, _ := o.seen(); !slices.Contains(all, "theirs") {
			t.Errorf("published: %v", all)
		}
	})
}

// copySlot is the copy that a run makes before it ends.
func (b *bench) copySlot(o *otherTool) {
	b.t.Helper()
	b.exec(`SELECT pg_copy_logical_replication_slot($1::text, $2::text, false, 'pgoutput')`, o.slot, b.cfg.Slot)
}

// Slots of other plugins, and on each version of PostgreSQL (the variable of another version's
// binaries): none of their rows is lost, and none is sent that their program has confirmed.
func TestTakeoverFromAnotherPlugin(t *testing.T) {
	b := shared(t)
	o := &otherTool{b: b, slot: b.cfg.Slot + "_other"}
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, o.slot)
	takes := func() { b.exec(`SELECT count(*) FROM pg_logical_slot_get_changes($1, NULL, NULL)`, o.slot) }
	b.insert("theirs")
	takes()
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "below")
	b.insert("both")
	takes()
	b.insert("ours")
	at := o.at()
	if s := b.takeComplete(o); s.Confirmed != at.String() || s.Plugin != "test_decoding" || b.confirmedFlush() != at {
		t.Errorf("%+v: the other slot stands at %s, ours at %s", s, at, b.confirmedFlush())
	}
	b.delivers("ours")
	b.wantSeen("ours")
}

// A transaction that wrote before the publication was there, and commits after the position that
// the other slot has reached: our slot would leave its rows out. It is waited for.
func TestTakeoverWithATransactionOlderThanThePublication(t *testing.T) {
	b := alone(t)
	o := b.newTool()
	o.start()
	commit := b.openInsert("open")
	_, err := b.takeOver(o, false)
	b.wantStop(err, event.ExitOperator, "takeover", olderText, "end them")
	b.insert("between")
	o.waitSeen("between")
	o.confirm()
	commit()
	o.waitSeen("open")
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "below")
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	o.kill()
	b.takeComplete(o)
	b.goesOn("ours")
	b.wantSeen("ours")
}

// A slot of our name that somebody made while the takeover was not complete is no copy: it may lack
// rows. It is refused, until it is dropped.
func TestTakeoverWithASlotThatIsNoCopy(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.takePassed(o)
	o.kill()
	b.insert("ours")
	b.createSlot("pgoutput")
	b.waitNoWalsenderOf(o.slot)
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "is no copy", "drop that one")
	b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
	b.takeComplete(o)
	b.delivers("ours")
	b.wantSeen("ours")
}

// What the other program did with its slot is what its slot said last: should it be gone before the
// copy, rows may be in no slot. Nothing begins from then on in silence: the rows are refused, or
// sent from the table.
func TestTakeoverFromASlotThatIsGone(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.wantStop(b.now(o), event.ExitOperator, "takeover")
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)
	b.insert("ours")
	stop := b.wantStop(b.now(o), event.ExitOperator, "takeover", "no longer exists", "teardown --yes")
	if stop.Acceptable() {
		t.Errorf("a loss could be accepted: %s", stop.Fix)
	}
	await.Must(t, setup.Teardown(await.Context(t), b.cfg, false))
	if err := b.run().wait(); err == nil || !strings.Contains(err.Error(), "already has 1 rows") {
		t.Errorf("the row in no slot is not named: %v", err)
	}
}

// An attempt that ended behind the copy, and then the other slot is dropped: the copy alone has
// what was not delivered. Nothing tells to drop it, and the relay goes on from it.
func TestTakeoverWhoseCopyIsLeftAlone(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.takePassed(o)
	o.kill()
	b.waitNoWalsenderOf(o.slot)
	b.insert("ours")
	b.exec(`SELECT pg_copy_logical_replication_slot($1, $2, false, 'pgoutput')`, o.slot, b.cfg.Slot)
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "if that is its copy", "keep slot", "state = 'adopt'")
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
	b.delivers("ours")
}

// A slot of ours that is there before the takeover may be older than its publication: rows may be
// hidden from it that the other slot has. It is refused, until it is dropped. What source.create
// says is about a start, and no matter here.
func TestTakeoverWithASlotThatIsThereAlready(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.cfg.Create = false
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox`)
	// in another database: what waits in it cannot be shown from here
	other := newBench(t, servers.OwnPostgres(t).Database(t))
	other.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, b.cfg.Slot)
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "is no copy", "choose another source.slot")
	other.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
	b.exec(`ALTER PUBLICATION p DROP TABLE outbox`)
	b.createSlot("pgoutput")
	b.insert("hidden")
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "is no copy")
	b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "below")
	b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitOperator, "takeover", "is not complete")
}

// Two takeovers of one slot whose records were written at the same moment: neither copies it, for
// both relays would publish its rows.
func TestTwoTakeoversBeganTogether(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.takePassed(o)
	o.kill()
	b.waitNoWalsenderOf(o.slot)
	b.exec(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, sends, state, incarnation, took_from)
		SELECT slot || '_2', system_id, timeline, publication, sends, state, 0, took_from FROM cdc_relay.slots`)
	b.wantStop(b.now(o), event.ExitUsage, "usage", "replaced by it already", "give that relay up first")
	b.wantText("0", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
}

// A copy that an earlier run has made, and that the server has invalidated since, is not used: the
// other slot has all.
func TestTakeoverWithACopyThatIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, servers.QuietPostgres(t).Database(t))
	o := b.newTool()
	b.takePassed(o)
	o.kill()
	b.waitNoWalsenderOf(o.slot)
	b.copySlot(o)
	b.exec(`ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'`)
	b.exec(`SELECT pg_reload_conf()`)
	b.invalidate()
	b.exec(`ALTER SYSTEM RESET max_slot_wal_keep_size`)
	b.exec(`SELECT pg_reload_conf()`)
	// the other program has gone on
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, o.slot)
	b.insert("ours")
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "cannot be continued", "drop it")
	b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
	b.takeComplete(o)
	// nor is the other slot dropped for one that was lost after the takeover
	b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
	_, err := b.takeOver(o, true)
	b.wantStop(err, event.ExitOperator, "takeover", "is lost since", "is not dropped")
	if !o.exists() {
		t.Error("the other slot is gone")
	}
}
