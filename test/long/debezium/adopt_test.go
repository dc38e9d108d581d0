//go:build nightly

package debezium

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// The relay goes on with the slot and the publication of a running Debezium Server, under load: nothing is lost, the order of
// each key is kept, and no more arrives twice than `check` has said. The publication is of all tables or of one, for all
// operations; the outbox has names of its own, and every other row is deleted in the transaction that inserts it.
//
// Stopped in good order, Debezium confirms what it has published; but each transaction only with the next one that it reads, or a heartbeat. So
// nothing at all comes twice when it has heartbeats, and nothing is written for the moment.
//
// The relay's records are its own, or with what import debezium makes of Debezium's file, Debezium's.
func TestSlotOfDebeziumServer(t *testing.T) {
	for name, m := range map[string]move{
		"all tables, killed, nothing flushed": {autocreate: "all_tables", flush: "60000", kill: true},
		"filtered, killed":                    {autocreate: "filtered", flush: "1000", kill: true},
		"all tables, stopped in good order":   {autocreate: "all_tables", flush: "60000"},
		"filtered, stopped at rest":           {autocreate: "filtered", flush: "1000", rest: true},
		"all tables, imported, killed":        {autocreate: "all_tables", flush: "1000", kill: true, imported: true},
	} {
		t.Run(name, func(t *testing.T) { m.run(t) })
	}
}

// move is one move from Debezium Server to the relay.
type move struct {
	autocreate string
	flush      string // offset.flush.interval.ms
	kill       bool
	rest       bool // heartbeats, and nothing is written while it is stopped
	imported   bool // the relay's configuration is what the import makes of Debezium's

	t     *testing.T
	ctx   context.Context
	db    string
	slot  string
	topic string
	kafka *devenv.Kafka

	config string // the relay's
}

const moveTables = `CREATE TABLE shop_events (event_id uuid PRIMARY KEY, stream text NOT NULL, stream_id text NOT NULL, name text NOT NULL, body jsonb);
	CREATE TABLE orders (id int PRIMARY KEY, state int); INSERT INTO orders VALUES (1, 0)`

func (m *move) run(t *testing.T) {
	var cancel context.CancelFunc
	m.t = t
	m.ctx, cancel = context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	m.db = devenv.SharedPostgres(t).Database(t)
	m.slot = fmt.Sprintf("moved_%d", time.Now().UnixNano())
	m.kafka = devenv.SharedKafka(t)
	m.topic = m.kafka.Topic(t, 3)
	conn, err := pgx.Connect(m.ctx, m.db)
	m.must(err)
	defer conn.Close(m.ctx)
	_, err = conn.Exec(m.ctx, moveTables)
	m.must(err)

	m.config = m.yaml()
	debezium := m.debezium()
	if m.imported {
		m.imports(debezium)
	}
	m.query(`SELECT count(*) FROM pg_create_logical_replication_slot($1 || '_probe', 'pgoutput')`)
	w := m.write(conn)
	m.until("Debezium to publish", func() bool { return len(m.arrived()) > 300 })
	m.refusedWhileItRuns()
	if m.flush == "1000" { // as any slot that has been in use for a minute; of one that nothing was confirmed of the relay wants to hear that it will do
		m.must(devenv.WaitOutgrown(m.ctx, m.db, m.slot))
	}
	if m.rest {
		w.pace.Lock()
		m.confirmed(len(w.written))
	}
	if m.kill {
		m.must(debezium.Kill())
	} else {
		m.must(debezium.Stop(m.ctx))
	}
	m.until("the slot to be free", func() bool {
		return m.query(`SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`) == 0
	})
	before, bound := len(m.arrived()), m.bound()
	if m.flush != "1000" {
		m.accept()
	}
	if m.rest {
		w.pace.Unlock()
	}
	if m.imported {
		if res := m.command("init"); res.Code != 0 {
			t.Fatalf("init exits %d: %s%s", res.Code, res.Stdout, res.Stderr)
		}
	}
	r := devenv.StartRelay(t, devenv.BuildRelay(t), m.config)
	m.must(r.WaitReady(m.ctx))
	m.until("the relay to publish", func() bool { return len(m.arrived()) > before+300 })
	written := w.end()
	m.until("all of it to arrive", func() bool { return len(first(m.arrived())) >= len(written) })
	m.check(written, bound)
	if code := r.Stop(t); code != 0 {
		t.Errorf("the relay exits %d", code)
	}
}

func (m *move) debezium() *devenv.Debezium {
	m.t.Helper()
	source, err := devenv.DebeziumSource(m.db, "shop_events")
	m.must(err)
	source["slot.name"], source["publication.autocreate.mode"] = m.slot, m.autocreate
	source["offset.flush.interval.ms"], source["topic.prefix"] = m.flush, m.slot
	if m.rest {
		source["heartbeat.interval.ms"] = "500"
		m.must(m.kafka.CreateTopic(m.ctx, "__debezium-heartbeat."+m.slot, 1, 1, nil))
	}
	devenv.EventRouter(source, map[string]string{
		"route.topic.replacement": m.topic, "table.field.event.id": "event_id", "route.by.field": "stream",
		"table.field.event.key": "stream_id", "table.field.event.payload": "body",
	})
	sink := devenv.DebeziumKafka(m.kafka.Brokers()...)
	sink["debezium.format.header.schemas.enable"] = "false"
	return devenv.StartDebezium(m.t, devenv.DebeziumOptions{DB: m.db, Source: source, Sink: sink})
}

// yaml is the relay's configuration: Debezium's slot, publication and topic.
func (m *move) yaml() string {
	return fmt.Sprintf(`source: {url: '%s', slot: %s, publication: dbz_publication, tables: [public.shop_events]}
outbox: {id: event_id, aggregate: stream, key: stream_id, type: name, payload: body}
sink: {kafka: {brokers: ['%s'], topic: %s}}
admin: {listen: '127.0.0.1:0'}
`, m.db, m.slot, strings.Join(m.kafka.Brokers(), "','"), m.topic)
}

// imports makes the configuration of the file that Debezium runs with, and the schema of the relay.
func (m *move) imports(debezium *devenv.Debezium) {
	m.t.Helper()
	file := filepath.Join(m.t.TempDir(), "cdc-relay.yaml")
	res, err := devenv.RunCommand(m.ctx, devenv.BuildRelay(m.t), "", "import", "debezium", filepath.Join(debezium.Dir(), "config", "application.properties"), "-o", file)
	m.must(err)
	if res.Code != 0 {
		m.t.Fatalf("import exits %d:\n%s%s", res.Code, res.Stdout, res.Stderr)
	}
	text, err := os.ReadFile(file)
	m.must(err)
	m.config = string(text)
	for _, part := range []string{"profile: debezium-server", "table.field.event.id: event_id", "tables: [public.shop_events]", "slot: " + m.slot} {
		if !strings.Contains(m.config, part) {
			m.t.Errorf("the import does not say %s:\n%s", part, m.config)
		}
	}
	m.command("init") // what it says of a slot that is held is looked at when it is free
}

func (m *move) command(args ...string) devenv.Result {
	m.t.Helper()
	res, err := devenv.RunCommand(m.ctx, devenv.BuildRelay(m.t), m.config, args...)
	m.must(err)
	return res
}

// refusedWhileItRuns: the relay says who holds the slot, and check too.
func (m *move) refusedWhileItRuns() {
	m.t.Helper()
	for _, name := range []string{"run", "check"} {
		res := m.command(name)
		if said := res.Stdout + res.Stderr; res.Code == 0 || name == "run" && res.Code != 3 || !strings.Contains(said, "Debezium Streaming") || !strings.Contains(said, "stop Debezium first") {
			m.t.Errorf("%s exits %d: %s", name, res.Code, said)
		}
	}
}

// confirmed waits until Debezium has published so many events, and confirmed the last: its position is at that commit, or behind.
func (m *move) confirmed(written int) {
	m.t.Helper()
	m.until("all to be published", func() bool { return len(first(m.arrived())) >= written })
	m.until("all to be confirmed", func() bool {
		return m.query(`SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn >= (
			SELECT max('0/0'::pg_lsn + ('x' || encode(substring(data FROM 3 FOR 8), 'hex'))::bit(64)::bigint)
			FROM pg_logical_slot_peek_binary_changes($1 || '_probe', NULL, 1000000, 'proto_version', '1', 'publication_names', 'dbz_publication')
			WHERE get_byte(data, 0) = ascii('C'))`) == 1
	})
}

// accept has an operator accept the slot, with the SQL of the refusal if init refuses it: where there is no older slot on the server it
// need not.
func (m *move) accept() {
	m.t.Helper()
	res := m.command("init")
	if res.Code == 0 {
		return
	}
	sql := regexp.MustCompile(`INSERT INTO cdc_relay\.slots \([^)]*\) VALUES \([^)]*\)`).FindString(res.Stdout + res.Stderr)
	if res.Code != 3 || sql == "" {
		m.t.Fatalf("init exits %d: %s%s", res.Code, res.Stdout, res.Stderr)
	}
	conn, err := pgx.Connect(m.ctx, m.db)
	m.must(err)
	defer conn.Close(m.ctx)
	_, err = conn.Exec(m.ctx, sql)
	m.must(err)
}

// bound is how many events check says may arrive twice at most.
func (m *move) bound() int {
	m.t.Helper()
	res := m.command("check", "--json")
	var findings []struct{ Name, Detail string }
	m.must(json.Unmarshal([]byte(res.Stdout), &findings))
	for _, f := range findings {
		if n := regexp.MustCompile(`^at most (\d+): |^nothing: `).FindStringSubmatch(f.Detail); f.Name == "may arrive twice" && n != nil {
			if n[1] == "" {
				return 0
			}
			bound, err := strconv.Atoi(n[1])
			m.must(err)
			return bound
		}
	}
	m.t.Fatalf("check (exit %d) names no bound: %s", res.Code, res.Stdout)
	return 0
}

// check is the checker: nothing lost, first occurrences of each key in order of their commits, no more twice than may be.
func (m *move) check(written []string, bound int) {
	m.t.Helper()
	arrived := m.arrived()
	firsts := first(arrived)
	for _, id := range written {
		if _, ok := firsts[id]; !ok {
			m.t.Errorf("%s is lost", id)
		}
	}
	last := map[string]int{}
	for i, id := range written {
		key := keyOf(i)
		if at := firsts[id]; at < last[key] {
			m.t.Errorf("%s of key %s came before an earlier one", id, key)
		} else {
			last[key] = at
		}
	}
	twice := len(arrived) - len(firsts)
	m.t.Logf("%d events, %d twice, at most %d said", len(written), twice, bound)
	if twice > bound || m.rest && bound > 0 {
		m.t.Errorf("%d came twice, check has said %d", twice, bound)
	}
	if m.kill && m.flush == "60000" && twice == 0 {
		m.t.Error("nothing came twice though Debezium had not flushed: nothing was tried")
	}
}

// arrived are the ids in the topic: a key has one partition, so its order there is that of the list.
func (m *move) arrived() []string {
	m.t.Helper()
	records, err := m.kafka.Records(m.ctx, m.topic)
	m.must(err)
	ids := make([]string, len(records))
	for i := range records {
		ids[i] = strings.Trim(records[i].Header("id"), `"`) // Debezium Server's is JSON
	}
	return ids
}

// first is where each id stands first.
func first(ids []string) map[string]int {
	at := map[string]int{}
	for i, id := range ids {
		if _, ok := at[id]; !ok {
			at[id] = i
		}
	}
	return at
}

func keyOf(n int) string { return fmt.Sprintf("key-%d", n%10) }

// writer commits one event after the other.
type writer struct {
	mu      sync.Mutex
	pace    sync.Mutex // held: nothing is written
	stop    chan struct{}
	done    chan struct{}
	written []string
	err     error
	m       *move
}

func (m *move) write(conn *pgx.Conn) *writer {
	w := &writer{m: m, stop: make(chan struct{}), done: make(chan struct{})}
	tick := time.NewTicker(3 * time.Millisecond)
	go func() {
		defer close(w.done)
		defer tick.Stop()
		for n := 0; w.err == nil; n++ {
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
			w.pace.Lock()
			id := fmt.Sprintf("0191e0c0-0000-7000-8000-%012d", n)
			w.err = pgx.BeginFunc(m.ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(m.ctx, `UPDATE orders SET state = state + 1`); err != nil {
					return err
				}
				if _, err := tx.Exec(m.ctx, `INSERT INTO shop_events VALUES ($1, 'order', $2, 'placed', $3)`, id, keyOf(n), map[string]int{"n": n}); err != nil {
					return err
				}
				if n%2 == 0 {
					return nil
				}
				_, err := tx.Exec(m.ctx, `DELETE FROM shop_events WHERE event_id = $1`, id)
				return err
			})
			if w.err == nil {
				w.written = append(w.written, id)
			}
			w.pace.Unlock()
		}
	}()
	m.t.Cleanup(func() { w.end() })
	return w
}

func (w *writer) end() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.done
	if w.err != nil && w.m.ctx.Err() == nil {
		w.m.t.Errorf("write: %v", w.err)
	}
	return w.written
}

// query is the count that a statement about the slot returns.
func (m *move) query(sql string) (n int) {
	m.t.Helper()
	conn, err := pgx.Connect(m.ctx, m.db)
	m.must(err)
	defer conn.Close(m.ctx)
	m.must(conn.QueryRow(m.ctx, sql, m.slot).Scan(&n))
	return n
}

func (m *move) until(what string, ok func() bool) {
	m.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			m.t.Fatalf("not within the bound: %s", what)
		}
	}
}

func (m *move) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}
