//go:build testall

// This file plays the findings of docs/failure-modes.md.
package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// played is how a row comes about, and what its command needs. SLOT stands for the slot's name.
type played struct {
	before  string                 // SQL before the first start
	foreign bool                   // no relay is started before
	was     string                 // more lines of the section source, at the first start
	spoil   string                 // SQL
	change  func(r *rig)           // of the configuration
	earlier int                    // findings that are accepted before
	flags   string                 // of the command; "": those of the row's first one
	fix     string                 // SQL that the row's command stands for, when that is no accept
	then    func(out string) error // what must be true of what it has sent then
}

const (
	partitionedOutbox = `DROP TABLE outbox; CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb) PARTITION BY LIST (aggregateid);
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN ('1'); CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`
	slotByHand   = `CREATE PUBLICATION "SLOT" FOR TABLE outbox; SELECT pg_create_logical_replication_slot('SLOT', 'pgoutput')`
	ofAllTables  = `CREATE PUBLICATION "SLOT" FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`
	remadeOutbox = `DROP TABLE outbox; CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb)`
	otherTable   = `CREATE TABLE other (LIKE outbox INCLUDING ALL)`
	waitingRow   = ` VALUES (gen_random_uuid(), 'order', 'waits', 'created', '{}')`
)

// playedRows are the parts of TestAfterExit3, by name: one of each kind of fix. The others are in
// after_exit_3_nightly_test.go.
var playedRows = map[string]played{
	"slot dropped":             {spoil: `SELECT pg_drop_replication_slot('SLOT')`},
	"a copy":                   {spoil: `UPDATE cdc_relay.slots SET system_id = '42'`, flags: "--copy"},
	"slot of nobody":           {foreign: true, before: slotByHand},
	"table renamed":            {spoil: `ALTER TABLE outbox RENAME TO away`, fix: `ALTER TABLE away RENAME TO outbox`},
	"had the name for a while": {before: ofAllTables, spoil: remadeOutbox + `; INSERT INTO outbox` + waitingRow + `; ` + remadeOutbox, earlier: 1, then: sent("waits")},
	"table listed":             {before: otherTable, spoil: `ALTER PUBLICATION "SLOT" ADD TABLE other; INSERT INTO other` + waitingRow, then: unsent("waits")},
	"relay's table not logged": {spoil: `ALTER TABLE cdc_relay.retry SET UNLOGGED`},
}

// Each finding that names this test, on a real server: the relay ends with 3 and the finding's
// message; one that was started with --hold-on-fatal reports its reason. The command is run as the
// message has it, and the relay relays again.
func TestAfterExit3(t *testing.T) {
	t.Parallel()
	of := map[string]exit3{}
	for _, row := range exit3Rows(t) {
		for _, test := range regexp.MustCompile(`TestAfterExit3/([^,;]*[^,; ])`).FindAllStringSubmatch(row.tests, -1) {
			of[test[1]] = row
		}
	}
	for name, c := range playedRows {
		row, named := of[name]
		if !named {
			t.Errorf("no finding names TestAfterExit3/%s", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.play(newRig(t), row)
		})
	}
}

// play makes the state, sees the row's finding, and goes on by the row's command.
func (c played) play(r *rig, row exit3) {
	r.t.Helper()
	line := c.spoiled(r)
	for range c.earlier {
		r.ok(c.accepting(r.t, line, "")...)
		line = r.refused(3, "run")
	}
	if !row.says(line) {
		r.t.Errorf("none of %q is said: %s", row.messages, line)
	}
	relay := runner.Start(r.t, r.binary, r.yaml(), "--hold-on-fatal")
	state(r.t, relay, "stopped")
	says(r.t, relay, "/metrics", 200, `cdc_relay_stopped{reason="`+row.reason+`"} 1`)
	r.exec(strings.ReplaceAll(c.fix, "SLOT", r.slot))
	for _, sql := range sqlFix.FindAllString(line, -1) {
		if !strings.Contains(sql, "...") {
			r.exec(sql)
		}
	}
	if offered := regexp.MustCompile("`cdc-relay accept ID([^`]*)`").FindStringSubmatch(row.command); offered != nil {
		if !strings.Contains(line, "cdc-relay accept ") { // what was fixed is another finding now
			line = r.refused(3, "run", "may be missing")
		}
		flags := c.flags
		if flags == "" {
			flags = strings.Join(regexp.MustCompile(`--[a-z-]+`).FindAllString(offered[1], -1), " ")
		}
		accept := c.accepting(r.t, line, flags)
		r.ok(append(accept, "--reason", "a test")...)
		defer c.kept(r, row.reason, accept, line)
	} else {
		if code := relay.Stop(r.t); code != 3 {
			r.t.Errorf("exit %d, want 3", code)
		}
		relay = runner.Start(r.t, r.binary, r.yaml())
	}
	says(r.t, relay, "/readyz?role=leader", 200)
	r.exec(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'after', 'created', '{}')`)
	eventually(r.t, func() string {
		if !strings.Contains(relay.Stdout(), `"key":"after"`) {
			return "it does not relay: " + relay.Log()
		}
		return ""
	})
	if c.then != nil {
		must(r.t, c.then(relay.Stdout()))
	}
	ended(r.t, relay)
}

// kept wants the interval of the message in cdc_relay.gap, for recover. Rows that stay in the slot,
// and a slot that no relay has used, have none.
func (c played) kept(r *rig, reason string, accept []string, line string) {
	r.t.Helper()
	const kept = `SELECT coalesce(string_agg(concat_ws(' ', from_lsn, reason, until_lsn IS NOT NULL, until_xid IS NOT NULL), ', '), 'none') FROM cdc_relay.gap WHERE finding = $1`
	got, want := ask[string](r, kept, accept[1]), "none"
	rows := slices.ContainsFunc(accept, regexp.MustCompile(`^--(skip|events)`).MatchString)
	// of a copy the other server goes on: nothing of that one is missing here
	if !rows && !c.foreign && c.flags != "--copy" {
		want = " " + reason + " t t"
		if said := regexp.MustCompile(`committed between (\S+) and`).FindStringSubmatch(line); said != nil {
			want = said[1] + want
		}
	}
	if !strings.HasSuffix(got, want) || strings.Contains(got, ",") {
		r.t.Errorf("the gap is %q, want %q", got, want)
	}
}

// sent wants an event with the key.
func sent(key string) func(string) error {
	return func(out string) error {
		if !strings.Contains(out, `"key":"`+key+`"`) {
			return fmt.Errorf("%s was not sent: %s", key, out)
		}
		return nil
	}
}

// unsent wants no event with the key.
func unsent(key string) func(string) error {
	return func(out string) error {
		if sent(key)(out) == nil {
			return fmt.Errorf("%s was sent: %s", key, out)
		}
		return nil
	}
}

// sqlFix is SQL that a message has for what must be fixed first.
var sqlFix = regexp.MustCompile(`ALTER PUBLICATION [^;]*|ALTER TABLE cdc_relay[^;]*`)

// spoiled makes the state that the row is about, and returns the message.
func (c played) spoiled(r *rig) string {
	r.t.Helper()
	sql := func(text string) {
		for one := range strings.SplitSeq(strings.ReplaceAll(text, "SLOT", r.slot), ";") {
			r.exec(one) // each in a transaction of its own
		}
	}
	sql(c.before)
	r.source = c.was
	if !c.foreign {
		relay := r.start()
		r.insert(1)
		eventually(r.t, func() string { return wantLines(relay, 1) })
		relay.Stop(r.t)
		r.released()
	}
	sql(c.spoil)
	if c.change != nil {
		c.change(r)
	}
	return r.refused(3, "run")
}

// accepting is the first accept of a message that has these flags. On another system the message
// adds the word about what was delivered.
func (c played) accepting(t *testing.T, line, flags string) []string {
	t.Helper()
	for _, command := range acceptLine.FindAllStringSubmatch(line, -1) {
		args := append([]string{"accept", command[1]}, strings.Fields(strings.ReplaceAll(command[2], "'", ""))...)
		has := slices.DeleteFunc(slices.Clone(args[2:]), func(arg string) bool { return !strings.HasPrefix(arg, "--") })
		if strings.TrimSuffix(strings.Join(has, " "), " --delivered") == flags {
			return args
		}
	}
	t.Fatalf("no accept with the flags %q in: %s", flags, line)
	return nil
}

// acceptLine is an accept in a message, with its flags.
var acceptLine = regexp.MustCompile(`cdc-relay accept ([0-9a-f]{12})((?: --[a-z-]+(?: (?:'[^']*'|[^\s;,()-][^\s;,()]*))?)*)`)
