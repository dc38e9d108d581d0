//go:build nightly

package fault

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// hostileRow is a kind of row of a role that may only INSERT, below source.max_event_bytes and made
// to hurt. The texts are SQL in which i is the row; "": an ordinary one.
type hostileRow struct {
	rows                                                int // 0: hostileRowsOfKind
	name, key, aggregate, payload, headers, traceparent string
	// onRabbitMQ and compat are what their dead letters say, without and with sink.compat; "": the
	// broker decides
	onRabbitMQ, compat string
}

const hostileRowsOfKind = 40

var hostileRows = []hostileRow{
	{name: "names within names", payload: `(repeat('{"' || repeat('n', 1000) || '":', 490) || i || repeat('}', 490))::jsonb`, compat: "budget of bytes"},
	{name: "objects of distinct names", payload: `(SELECT jsonb_build_object('a', jsonb_build_array(jsonb_object_agg('f' || g, 1), jsonb_object_agg('g' || g, 1))) FROM generate_series(1, 38000) g)`},
	{name: "objects that swell", payload: `(SELECT jsonb_build_object('a', jsonb_agg(jsonb_build_object('f' || g, 1))) FROM generate_series(1, 60000) g)`, compat: "budget of steps"},
	{name: "small rows that make much", rows: 500, payload: `(repeat('{"12345678":', 300) || i || repeat('}', 300))::jsonb`},
	{name: "many numbers", payload: `('{"a": [1' || repeat(', 1', 340000) || ']}')::jsonb`},
	{name: "many objects", payload: `('{"a": [{"a": 1}' || repeat(', {"a": 1}', 100000) || ']}')::jsonb`},
	{name: "sparse objects", payload: `('{"a":[{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":' || i || '}' || repeat(',{}', 340000) || ']}')::json`, compat: "budget of steps"},
	{name: "many headers", headers: `(SELECT jsonb_object_agg(to_hex(g), 1) FROM generate_series(1, 80000) g)`, onRabbitMQ: "a frame carries"},
	{name: "a long header", headers: `jsonb_build_object('h', repeat(chr(1), 150000))`, onRabbitMQ: "a frame carries"},
	{name: "a key of control characters", key: `repeat(chr(1), 900000) || i`},
	{name: "a long aggregate", aggregate: `repeat(md5(i::text), 28000)`},
	{name: "a long traceparent", traceparent: `repeat('0', 900000)`},
}

// asDebeziumServer makes of a row a message several times as large.
const asDebeziumServer = "profile: debezium-server, options: {sink.rabbitmq.exchange: outbox.events, sink.rabbitmq.routingKey.source: static, sink.rabbitmq.routingKey: order, table.expand.json.payload: 'true', table.fields.additional.placement: 'type:header,headers:header,traceparent:header'}"

// insertHostile writes the rows of a kind.
func insertHostile(s *stand.Stand, h *hostileRow) {
	s.T.Helper()
	s.SQL(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent)
		SELECT gen_random_uuid(), %s, %s, 'hostile', %s, %s, %s FROM generate_series(1, $1::int) i`,
		cmp.Or(h.aggregate, "'order'"), cmp.Or(h.key, "'hostile ' || i"), cmp.Or(h.payload, `'{}'::jsonb`), cmp.Or(h.headers, "NULL::jsonb"), cmp.Or(h.traceparent, "NULL::text")), max(h.rows, hostileRowsOfKind))
}

// startSmall starts a relay with the limits of deploy/: 256 MiB of memory, and rows of up to 1 MiB.
func startSmall(t *testing.T, s *stand.Stand, compat string) *runner.Relay {
	t.Helper()
	group, err := processes.LimitMemory(fmt.Sprint("cdc-relay-test-hostile-", s.Slot, "-", os.Getpid()), 256<<20)
	if err != nil {
		t.Fatalf("this test limits the memory of a relay, so it must run as root where control groups may be made (a container must be privileged): %v", err)
	}
	t.Cleanup(func() {
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
	})
	s.Source = "max_event_bytes: 1MiB"
	s.Env = append(s.Env, "GOMEMLIMIT=200MiB")
	s.SQL(`ALTER TABLE outbox ALTER payload TYPE json`) // which has no blanks of its own
	s.Compat = compat
	r := s.Start()
	s.Must(group.Add(r.Pid()))
	return r
}

// untilAlive is Until for what only a relay that runs can bring about.
func untilAlive(s *stand.Stand, r *runner.Relay, what string, ok func() bool) {
	s.T.Helper()
	s.Until(what, func() bool {
		if !r.Running() {
			code, err := r.Exit(s.Context())
			s.T.Fatalf("until %s: the relay ended with %d, %v", what, code, err)
		}
		return ok()
	})
}

// Rows of a role that may only INSERT. A relay with little memory is not killed: each of them
// becomes a dead letter or is delivered, the healthy events around them are delivered, and the
// worst of them say which budget they are over.
func TestHostileRows(t *testing.T) {
	for name, c := range map[string]struct {
		place  func() stand.Place
		compat func(s *stand.Stand) string
	}{
		"RabbitMQ":                    {func() stand.Place { return stand.SharedRabbitMQ(t) }, nil},
		"RabbitMQ as Debezium Server": {func() stand.Place { return stand.SharedRabbitMQ(t) }, func(*stand.Stand) string { return asDebeziumServer }},
		"Kafka":                       {func() stand.Place { return stand.SharedKafkaWith(t, stand.Topics{Partitions: 48}) }, nil},
		"Kafka as Connect": {func() stand.Place { return stand.SharedKafkaWith(t, stand.Topics{Partitions: 48}) }, func(s *stand.Stand) string {
			return "profile: debezium-connect, options: {route.topic.replacement: '" + s.Kafka.Topic("order") + "', table.expand.json.payload: 'true', topic.prefix: p, table.fields.additional.placement: 'type:envelope,headers:header,traceparent:envelope'}"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := stand.On(t, servers.SharedPostgres(t), c.place())
			compat := ""
			if c.compat != nil {
				compat = c.compat(s)
			}
			r := startSmall(t, s, compat)
			for i := range hostileRows {
				h := &hostileRows[i]
				s.Write(20)
				insertHostile(s, h)
				s.Write(20)
				var end pglogrepl.LSN
				s.Query([]any{&end}, `SELECT pg_current_wal_insert_lsn()`)
				untilAlive(s, r, "the slot to pass "+h.name, func() bool { return s.Flush() >= end })
				peak, err := r.PeakRSS()
				s.Must(err)
				t.Logf("%s: peak RSS %d MiB, %d dead letters", h.name, peak>>20, s.RowsIn(checker.Open))
				named := h.compat
				if compat == "" {
					named = ""
					if s.RabbitMQ != nil {
						named = h.onRabbitMQ
					}
				}
				if named == "" {
					continue
				}
				var count int
				s.Query([]any{&count}, `SELECT count(*) FROM cdc_relay.dead_letter WHERE slot = $1 AND reason = 'too_large' AND position($2 IN error) > 0`, s.Slot, named)
				if count < hostileRowsOfKind {
					var said []string
					s.Query([]any{&said}, `SELECT array_agg(DISTINCT reason || ': ' || error) FROM cdc_relay.dead_letter WHERE slot = $1`, s.Slot)
					t.Errorf("%s: %d dead letters name %q, want %d: %q", h.name, count, named, hostileRowsOfKind, said)
				}
			}
			var healthy int
			s.Query([]any{&healthy}, healthyDeadSQL, s.Slot)
			if deferred := s.RowsIn(checker.Deferred); healthy > 0 || deferred > 0 && s.RabbitMQ == nil {
				t.Errorf("%d healthy events are dead letters, %d events are deferred", healthy, deferred)
			}
			stopped(s, r, 0)
		})
	}
}

const healthyDeadSQL = `SELECT count(*) FROM cdc_relay.dead_letter WHERE slot = $1 AND convert_from(type, 'UTF8') <> 'hostile'`

// The same by way of the retry table, with nothing bound: each message comes back whole, from the
// stream and then with each attempt, on all lanes at once.
func TestHostileRowsDeferred(t *testing.T) {
	s := stand.On(t, servers.SharedPostgres(t), stand.SharedRabbitMQ(t))
	r := startSmall(t, s, asDebeziumServer)
	s.Unbind("outbox.events", "#")
	for i := range hostileRows {
		insertHostile(s, &hostileRows[i])
	}
	s.Write(100)
	var end pglogrepl.LSN
	s.Query([]any{&end}, `SELECT pg_current_wal_insert_lsn()`)
	untilAlive(s, r, "the slot to pass them", func() bool { return s.Flush() >= end })
	if deferred := s.RowsIn(checker.Deferred); deferred < 500 {
		t.Fatalf("%d events are deferred", deferred)
	}
	s.Bind("outbox.events", "#")
	untilAlive(s, r, "nothing to be deferred", func() bool { return s.RowsIn(checker.Deferred) == 0 })
	peak, err := r.PeakRSS()
	s.Must(err)
	t.Logf("peak RSS %d MiB, %d dead letters", peak>>20, s.RowsIn(checker.Open))
	var healthy int
	if s.Query([]any{&healthy}, healthyDeadSQL, s.Slot); healthy > 0 {
		t.Errorf("%d healthy events are dead letters", healthy)
	}
	stopped(s, r, 0)
}
