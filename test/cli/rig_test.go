// Package cli runs the real binary as a user meets it: each command, each exit code with its one
// clear line, the admin port, the metrics, and what the documents say.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// rig is one database with an outbox table, and the configuration of a relay that reads it. The
// sink is stdout unless a test says otherwise: most of what is refused is refused before a broker
// is asked.
type rig struct {
	t      *testing.T
	binary string
	db     string        // URL of the database
	slot   string        // and publication
	reads  string        // the publication, when it is not the slot's name
	source string        // more lines of the section source, indented by two
	sink   string        // what stands under sink, indented by two
	admin  string        // more keys of the section admin, each after a comma
	more   string        // more sections
	relay  *runner.Relay // of a shared rig that has one
}

var slots atomic.Int64

// bare is a rig on an empty database of the shared server.
func bare(t *testing.T) *rig {
	t.Helper()
	return on(t, servers.SharedPostgres(t).Database(t))
}

func on(t *testing.T, db string) *rig {
	t.Helper()
	return &rig{
		t: t, binary: runner.Build(t), db: db, slot: fmt.Sprintf("cli_%d_%d_%d", time.Now().Unix(), os.Getpid(), slots.Add(1)),
		sink: "  stdout: {}",
	}
}

// newRig is bare with the outbox table.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := bare(t)
	r.admin = ", tokens: [{name: ann, role: operate, value: toksecret-to-operate}]"
	r.exec(load.OutboxTable)
	return r
}

// yaml is the configuration.
func (r *rig) yaml() string {
	return fmt.Sprintf("source:\n  url: %s\n  slot: %s\n  publication: %s\n%s\nsink:\n%s\nadmin: {listen: 127.0.0.1:0%s}\n%s\n",
		r.db, r.slot, cmp.Or(r.reads, r.slot), r.source, r.sink, r.admin, r.more)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command runs one command to its end.
func (r *rig) command(args ...string) runner.Result {
	r.t.Helper()
	res, err := runner.RunCommand(await.Context(r.t), r.binary, r.yaml(), args...)
	must(r.t, err)
	return res
}

// ok runs a command that must succeed, and returns what it has printed.
func (r *rig) ok(args ...string) string {
	r.t.Helper()
	res := r.command(args...)
	if res.Code != 0 {
		r.t.Fatalf("%v exits %d: %s%s", args, res.Code, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

// refused runs a command that must end by itself with the code, and with one line that has all the
// words.
func (r *rig) refused(code int, command string, words ...string) string {
	r.t.Helper()
	return refusal(r.t, r.command(strings.Fields(command)...), code, words...)
}

// refusal is the one line in which a command has said why it ended.
func refusal(t *testing.T, res runner.Result, code int, words ...string) string {
	t.Helper()
	line := lastWords(t, res.Stderr)
	if res.Code != code {
		t.Errorf("exit %d, want %d: %s", res.Code, code, res.Stderr)
	}
	for _, w := range words {
		if !strings.Contains(line, w) {
			t.Errorf("the line does not say %q: %s", w, line)
		}
	}
	return line
}

// lastWords finds the one error in what was written to stderr: "cdc-relay: …", with its further
// lines behind it, or the log's line of level error.
func lastWords(t *testing.T, stderr string) string {
	t.Helper()
	var found []string
	further := false // the lines before are of such an error
	for line := range strings.Lines(stderr) {
		var entry struct{ Level, Error string }
		switch {
		case further && strings.HasPrefix(line, "  "):
			found[len(found)-1] += " " + strings.TrimSpace(line)
			continue
		case strings.HasPrefix(line, "cdc-relay: "):
			found = append(found, strings.TrimSpace(line))
			further = true
			continue
		case json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error":
			found = append(found, entry.Error)
		}
		further = false
	}
	if len(found) != 1 {
		t.Fatalf("%d lines say why it ended, want one: %s", len(found), stderr)
	}
	return found[0]
}

// start runs the relay until it is ready.
func (r *rig) start() *runner.Relay {
	r.t.Helper()
	relay := runner.Start(r.t, r.binary, r.yaml())
	must(r.t, relay.WaitReady(await.Context(r.t)))
	return relay
}

// ends waits for a relay's end by itself, and checks its last line.
func (r *rig) ends(relay *runner.Relay, code int, words ...string) string {
	r.t.Helper()
	got, err := relay.Exit(await.Context(r.t))
	must(r.t, err)
	return refusal(r.t, runner.Result{Code: got, Stderr: relay.Log()}, code, words...)
}

// released waits until the server has seen that whoever held the slot has gone: its process ends a
// moment after ours.
func (r *rig) released() {
	r.t.Helper()
	becomes(r, false, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)`, r.slot)
}

// advanceSlot moves the slot past all that was written, when its relay has stopped.
func (r *rig) advanceSlot() {
	r.t.Helper()
	r.released()
	r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
}

// exec runs SQL as the owner of the database.
func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	must(r.t, execOn(await.Context(r.t), r.db, sql, args...))
}

// addTransactionColumn runs the SQL that init prints, as an operator does: he leaves out a column
// that is there, and the index of a partitioned table.
func (r *rig) addTransactionColumn() {
	r.t.Helper()
	for _, sql := range strings.Split(r.ok("init", "--add-transaction-column"), ";\n") {
		err := execOn(await.Context(r.t), r.db, sql)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "42701" || pg.Code == "0A000") {
			continue
		}
		must(r.t, err)
	}
}

func execOn(ctx context.Context, db, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// ask is the one value that a query gives.
func ask[T any](r *rig, sql string, args ...any) (v T) {
	r.t.Helper()
	for again := false; ; again = true {
		conn := session(r.t, r.db)
		err := conn.QueryRow(await.Context(r.t), sql, args...).Scan(&v)
		if err == nil {
			return v
		}
		if again || !conn.IsClosed() { // it may have ended since the last question
			r.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// sessions are those of ask, by test and address: a test asks often, and to connect costs more than
// the question. They keep nothing between two questions.
var sessions struct {
	sync.Mutex
	of map[*testing.T]map[string]*pgx.Conn
}

func session(t *testing.T, db string) *pgx.Conn {
	t.Helper()
	sessions.Lock()
	defer sessions.Unlock()
	if sessions.of == nil {
		sessions.of = map[*testing.T]map[string]*pgx.Conn{}
	}
	if sessions.of[t] == nil {
		sessions.of[t] = map[string]*pgx.Conn{}
		t.Cleanup(func() { endSessions(t) })
	}
	if conn := sessions.of[t][db]; conn != nil && !conn.IsClosed() {
		return conn
	}
	cfg, err := pgx.ParseConfig(db)
	must(t, err)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec // tables change
	conn, err := pgx.ConnectConfig(await.Context(t), cfg)
	must(t, err)
	sessions.of[t][db] = conn
	return conn
}

func endSessions(t *testing.T) {
	sessions.Lock()
	defer sessions.Unlock()
	for _, conn := range sessions.of[t] {
		_ = conn.Close(context.Background())
	}
	delete(sessions.of, t)
}

// becomes waits until a query gives a value.
func becomes[T comparable](r *rig, want T, sql string, args ...any) {
	r.t.Helper()
	eventually(r.t, func() string {
		if got := ask[T](r, sql, args...); got != want {
			return fmt.Sprintf("%v, want %v: %s", got, want, sql)
		}
		return ""
	})
}

// ended stops a relay, which must end in order.
func ended(t *testing.T, relay *runner.Relay) {
	t.Helper()
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d: %s", code, relay.Log())
	}
}

// insert commits n rows in one transaction.
func (r *rig) insert(n int) {
	r.t.Helper()
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), 'order', i::text, 'created', jsonb_build_object('n', i) FROM generate_series(1, $1) i`, n)
}

// eventually waits until done says "", and else fails with what it says. What takes longer is asked
// about less often: a command, or a look at the metrics, takes some time of a processor.
func eventually(t *testing.T, done func() string) {
	t.Helper()
	var why string
	leftOut := 0
	await.Until(t, "the test to go on", func() bool {
		if leftOut > 0 {
			leftOut--
			return false
		}
		began := time.Now()
		why = done()
		leftOut = min(int(time.Since(began)/await.Every), 10)
		return why == ""
	}, func() any { return why })
}

// as is the address of a database with another user.
func as(db, user, password string) string {
	u, err := url.Parse(db)
	if err != nil {
		return err.Error()
	}
	u.User = url.UserPassword(user, password)
	if password == "" {
		u.User = url.User(user)
	}
	return u.String()
}

// through is an address with another host and port.
func through(address, host string) string {
	u, err := url.Parse(address)
	if err != nil {
		return err.Error()
	}
	u.Host = host
	return u.String()
}

func proxy(t *testing.T, target string) *netproxy.Proxy {
	t.Helper()
	p, err := netproxy.Start(target)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}
