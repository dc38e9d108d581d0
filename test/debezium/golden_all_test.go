//go:build testall

package debezium

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	configuration "github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
	"github.com/cdc-relay/cdc-relay/test/debezium/stand"
)

// TestSameAsDebezium of all other groups. Those for Kafka share one stream: the test checks the
// tables, decodes what the server sends and makes the records by the relay's own code, configured
// as each group says. What else a relay does with a record is not of its group: TestSameAsDebezium
// has it, and the nightly tier a relay for each group.
func TestEachGroupIsSameAsDebezium(t *testing.T) {
	groups := others()
	s := openStream(t)
	for _, g := range groups {
		if !g.Rabbit {
			t.Run(g.Name, func(t *testing.T) { s.compare(t, &g) })
		}
	}
	sameAsDebezium(t, slices.DeleteFunc(groups, func(g cases.Group) bool { return !g.Rabbit }))
}

// stream is what the server streams of a database in which the groups have their tables one after
// the other.
type stream struct {
	url  string
	conn *pgx.Conn     // of who writes the rows
	pool *pgxpool.Pool // as the relay's
	wal  *pgconn.PgConn
}

// endOfGroup is a message that no group relays.
const endOfGroup = `SELECT pg_logical_emit_message(true, 'end of group', '')`

func openStream(t *testing.T) *stream {
	t.Helper()
	ctx := await.Context(t)
	s := &stream{url: servers.SharedPostgres(t).Database(t)}
	from := source.Config{URL: s.url, Slot: "golden_groups", Publication: "golden", Log: zap.NewNop()}
	var err error
	s.conn, err = pgx.Connect(ctx, s.url)
	await.Must(t, err)
	t.Cleanup(func() { s.conn.Close(await.Context(t)) })
	stand.Exec(t, s.conn, []string{`CREATE PUBLICATION golden FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`})
	s.pool, err = source.ConnectPool(&from)
	await.Must(t, err)
	t.Cleanup(s.pool.Close)
	s.wal, err = source.ConnectStream(ctx, &from)
	await.Must(t, err)
	t.Cleanup(func() { source.CloseStream(s.wal) })
	_, err = pglogrepl.CreateReplicationSlot(ctx, s.wal, from.Slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{Temporary: true})
	await.Must(t, err)
	await.Must(t, pglogrepl.StartReplication(ctx, s.wal, from.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'golden'", "messages 'true'"},
	}))
	return s
}

// compare makes the records of a group, and compares them with Debezium's.
func (s *stream) compare(t *testing.T, g *cases.Group) {
	golden, err := cases.Read("testdata", g.Name)
	await.Must(t, err)
	t.Cleanup(func() { stand.DropTables(t, s.conn) })
	stand.Exec(t, s.conn, g.SetupSQL())
	records, dead, err := s.records(t, g)
	switch {
	case g.Refused != "":
		if err == nil || !strings.Contains(err.Error(), g.Refused) {
			t.Errorf("the table is not refused by %q but %v", g.Refused, err)
		}
	case err != nil:
		t.Error(err)
	case g.GoesOn:
		if len(dead) > 0 || len(records) != 2 {
			t.Errorf("%d records and the dead letters %q, want the row and the end", len(records), dead)
		}
	case g.Stops != "":
		if len(dead) != 1 || len(records) > 0 {
			t.Errorf("%d records and the dead letters %q, want a dead letter of the row", len(records), dead)
		}
	default:
		for _, d := range slices.Concat(g.Differences(golden.Records, records), g.Refusals(golden.Records, records, dead)) {
			t.Error(d)
		}
	}
}

// records writes the rows of a group and makes their records; dead are the ids of those of which
// there is none. An error is why the relay would not start.
func (s *stream) records(t *testing.T, g *cases.Group) (records []cases.Record, dead []string, err error) {
	t.Helper()
	ctx := await.Context(t)
	path := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	await.Must(t, os.WriteFile(path, []byte(config(g, s.url, `kafka: {brokers: ["127.0.0.1:9092"]}`)), 0o600))
	c, err := configuration.Load(path, nil)
	if err != nil {
		return nil, nil, err
	}
	columns := wiring.SinkColumns(c)
	encoder, err := c.Sink.Compat.Records().Encoder(columns, nil)
	await.Must(t, err)
	from, err := wiring.Replication(c, columns, zap.NewNop())
	await.Must(t, err)
	from.Publication = "golden"
	tables, err := schema.FindTables(ctx, s.pool, &from, true)
	if err != nil {
		return nil, nil, err
	}
	statements, _ := g.Statements()
	if g.Stops != "" && !g.GoesOn {
		statements = statements[:1]
	}
	began := time.Now()
	stand.Exec(t, s.conn, append(statements, endOfGroup))

	decoder := decode.New(decode.Config{Tables: tables, Columns: columns, Shapes: from.Shapes, LeftOut: from.MaxEventBytes > 0})
	var msg decode.Message
	var made sink.Record
	offsets, ended := map[string]int64{}, false
	for {
		await.Must(t, decoder.Decode(s.frame(t), &msg))
		switch {
		case msg.Shape != nil:
			await.Must(t, schema.CompleteShape(ctx, s.pool, from.Types, msg.Shape, msg.OID))
			await.Must(t, decoder.Shaped(msg.OID, msg.Shape))
		case msg.Kind == decode.Row:
			if fault := makeRecord(encoder, msg.Event, &made); fault != nil {
				dead = append(dead, string(msg.Event.ID))
				continue
			}
			r := recordOf(g, &made, began)
			r.Offset = offsets[r.Topic]
			offsets[r.Topic]++
			records = append(records, r)
		case msg.Kind == decode.Skipped && msg.Reason == "message":
			ended = true
		case msg.Kind == decode.Commit && ended:
			cases.Sort(records)
			return records, dead, nil
		}
	}
}

// frame is the next one of pgoutput.
func (s *stream) frame(t *testing.T) []byte {
	t.Helper()
	for {
		msg, err := s.wal.ReceiveMessage(await.Context(t))
		await.Must(t, err)
		data, ok := msg.(*pgproto3.CopyData)
		if !ok {
			t.Fatalf("the server has sent %T", msg)
		}
		if data.Data[0] == pglogrepl.XLogDataByteID { // else a keepalive, which wants no answer
			xlog, err := pglogrepl.ParseXLogData(data.Data[1:])
			await.Must(t, err)
			return xlog.WALData
		}
	}
}

// makeRecord makes the record of a row as the sink for Kafka does, and chooses its partition.
func makeRecord(encoder sink.Encoder, ev *event.Event, made *sink.Record) *sink.Fault {
	if fault := sink.RowFault(ev); fault != nil {
		return fault
	}
	if fault := encoder.Place(ev, made); fault != nil {
		return fault
	}
	if fault := encoder.Encode(ev, made); fault != nil {
		return fault
	}
	if made.Time < 0 || made.Partition >= stand.Partitions {
		return sink.PermanentFault(sink.Invalid, "no record of Kafka's")
	}
	made.Partition = kafka.PartitionOf(ev, made, stand.Partitions)
	return nil
}

// recordOf is a record as a consumer sees it.
func recordOf(g *cases.Group, made *sink.Record, began time.Time) cases.Record {
	r := cases.Record{
		Topic: string(made.Topic), Partition: int(made.Partition), Key: cases.Of(made.Key), Value: cases.Of(made.Value),
		Time: cases.Timestamp(time.UnixMilli(made.Time), began),
	}
	if made.Key == nil && !g.Placed() {
		r.Partition = -1
	}
	for _, h := range made.Headers {
		r.Headers = append(r.Headers, cases.Header{Name: h.Name, Value: cases.Of(h.Value)})
	}
	return r
}
