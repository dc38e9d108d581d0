//go:build nightly

package debezium

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

// bound is how long anything may take that takes seconds on an idle machine.
const bound = 3 * time.Minute

// stage is a database under load, a broker with a consumer that reads all the time, and what
// Debezium and the relay are started with, one after the other, on one slot.
type stage struct {
	t        *testing.T
	db       string
	slot     string
	source   map[string]string // Debezium's
	sink     map[string]string
	config   string // the relay's, see imports
	consumer consumers.Witness

	load    *load.Workload
	endLoad func()
}

var stages atomic.Int64

// newStage has a broker, "rabbitmq" or "kafka".
func newStage(t *testing.T, broker string) *stage {
	t.Helper()
	s := &stage{t: t, db: servers.SharedPostgres(t).Database(t), slot: fmt.Sprintf("move_%d_%d", time.Now().Unix(), stages.Add(1))}
	must(t, load.CreateOutbox(s.within(), s.db))
	var err error
	s.source, err = debeziumserver.DebeziumSource(s.db, "outbox")
	must(t, err)
	s.source["slot.name"], s.source["publication.name"] = s.slot, s.slot+"_publication"
	s.source["offset.flush.interval.ms"] = "1000"
	options := map[string]string{"table.fields.additional.placement": "type:header:eventType"}
	switch broker {
	case "rabbitmq":
		vhost := servers.SharedRabbitMQ(t).VHost(t)
		c, err := consumers.StartConsumer(s.within(), consumers.ConsumerOptions{URL: vhost})
		must(t, err)
		t.Cleanup(c.Close)
		s.consumer, s.sink = c, debeziumserver.DebeziumRabbitMQ(vhost)
		s.sink["debezium.sink.rabbitmq.exchange"], s.sink["debezium.sink.rabbitmq.routingKey.source"] = "outbox.events", "topic"
	case "kafka":
		k := servers.SharedKafka(t)
		topic := k.Topic(t, 3)
		c, err := consumers.StartKafkaConsumer(s.within(), consumers.KafkaConsumerOptions{Brokers: k.Brokers(), Topics: []string{topic}})
		must(t, err)
		t.Cleanup(c.Close)
		s.consumer, s.sink = c, debeziumserver.DebeziumKafka(k.Brokers()...)
		options["route.topic.replacement"] = topic
	}
	s.sink["debezium.format.header.schemas.enable"] = "false"
	debeziumserver.EventRouter(s.source, options)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stage) within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	s.t.Cleanup(cancel)
	return ctx
}

// debezium starts Debezium Server, with the offsets of an earlier one in dir ("": with none), and
// waits until it streams.
func (s *stage) debezium(dir string) *debeziumserver.Debezium {
	s.t.Helper()
	return debeziumserver.StartDebezium(s.t, debeziumserver.DebeziumOptions{DB: s.db, Source: s.source, Sink: s.sink, Dir: dir})
}

// imports makes the relay's configuration: what import debezium makes of the file that Debezium
// Server runs with. It is left for commands and relays to come.
func (s *stage) imports(d *debeziumserver.Debezium, flags ...string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "cdc-relay.yaml")
	args := append([]string{"import", "debezium", filepath.Join(d.Dir(), "config", "application.properties"), "-o", file}, flags...)
	res, err := runner.RunCommand(s.within(), runner.Build(s.t), "", args...)
	must(s.t, err)
	if res.Code != 0 {
		s.t.Fatalf("import exits %d:\n%s%s", res.Code, res.Stdout, res.Stderr)
	}
	text, err := os.ReadFile(file)
	must(s.t, err)
	secrets := strings.NewReplacer("${POSTGRES_PASSWORD}", s.source["database.password"], "${RABBITMQ_URL}", s.sink["debezium.sink.rabbitmq.connection.uri"])
	s.config = strings.Replace(secrets.Replace(string(text)), "  slot: cdc_relay ", "  slot: "+s.relaySlot()+" ", 1)
	if res, err = runner.RunCommand(s.within(), runner.Build(s.t), s.config, "config", "validate"); err != nil || res.Code != 0 {
		s.t.Fatalf("%v, exit %d: %s\n%s", err, res.Code, res.Stderr, s.config)
	}
}

// free waits until nobody holds the slot: the server may notice a while after a process that it has
// ended, and what is started meanwhile refuses a slot that another program holds.
func (s *stage) free() {
	s.t.Helper()
	for ctx := s.within(); query[bool](s, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, s.slot); pause(ctx) {
		must(s.t, ctx.Err())
	}
}

// relay makes what the relay needs in the database, starts it and waits until it is ready.
func (s *stage) relay() *runner.Relay {
	s.t.Helper()
	s.free()
	if res, err := runner.RunCommand(s.within(), runner.Build(s.t), s.config, "init"); err != nil || res.Code != 0 {
		s.t.Fatalf("init: %v, exit %d: %s%s", err, res.Code, res.Stdout, res.Stderr)
	}
	r := runner.Start(s.t, runner.Build(s.t), s.config)
	must(s.t, r.WaitReady(s.within()))
	return r
}

// writes begins the load; it goes on until finish.
func (s *stage) writes() {
	s.load = &load.Workload{URL: s.db, Writers: 3, Keys: 40, RowsPerTx: 2, Rollbacks: 0.05, SavepointRollbacks: 0.05, Rate: 400, Seed: 7}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.load.Run(ctx) }()
	ended := false
	s.endLoad = func() {
		cancel()
		if !ended {
			ended = true
			must(s.t, <-done)
		}
	}
	s.t.Cleanup(s.endLoad)
}

// more waits until n events more have arrived.
func (s *stage) more(n int) {
	s.t.Helper()
	have, _ := s.consumer.Count()
	must(s.t, s.consumer.WaitCount(s.within(), have+n))
}

// finish ends the load, waits until every committed row has arrived, and asks the checker: lost 0,
// order per key kept, and no more duplicates than allowed. It returns how many there were.
func (s *stage) finish(most int) checker.Verdict {
	s.t.Helper()
	s.endLoad()
	rows, err := load.ReadCommitted(s.within(), s.db)
	must(s.t, err)
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	if err := s.consumer.WaitIDs(s.within(), ids); err != nil {
		s.t.Error(err)
	}
	must(s.t, s.consumer.Drain(s.within()))
	verdict := checker.Check(checker.History{Committed: rows, RolledBack: s.load.RolledBack(), Deliveries: s.consumer.Deliveries(), MaxDuplicates: most})
	if err := verdict.Err(); err != nil {
		s.t.Error(err)
	}
	s.t.Log(verdict)
	return verdict
}

// twice is how many events wait in the relay's slot, from where the other one stood at the end: at
// most so many arrive twice.
func (s *stage) twice() int {
	s.t.Helper()
	return query[int](s, `SELECT count(*) FROM (
			SELECT data, max(CASE WHEN get_byte(data, 0) = ascii('B') THEN '0/0'::pg_lsn + ('x' || encode(substring(data FROM 2 FOR 8), 'hex'))::bit(64)::bigint END)
				OVER (ORDER BY n) AS commit
			FROM cdc_relay.slots o, pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', o.publication) WITH ORDINALITY m(lsn, xid, data, n)
			WHERE o.slot = $1) m
		WHERE get_byte(data, 0) = ascii('I') AND commit >= (SELECT took_until FROM cdc_relay.slots WHERE slot = $1)`, s.slot)
}

func pause(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	<-ctx.Done()
}

// query is the one value that a query gives.
func query[T any](s *stage, sql string, args ...any) (v T) {
	s.t.Helper()
	ctx := s.within()
	conn, err := pgx.Connect(ctx, s.db)
	must(s.t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}
