//go:build testall

package fault

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// Whatever else the publication sends is passed over: changes of other tables, updates, deletes and
// truncates, of the outbox table too, and logical messages. Positions stay the same over a restart.
func TestPublicationForAllTables(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		// the server is not to end the session while its reports are held: nothing more would be
		// read
		s.Timeout = "60s"
		s.WatchFlush()
		s.SQL(`CREATE TABLE other (id int PRIMARY KEY, note text); INSERT INTO other SELECT i, 'x' FROM generate_series(1, 100) i;
			CREATE TABLE emptied (id int PRIMARY KEY)`)
		for i := range 30 {
			s.SQL(stand.Insert("outbox", "order", fmt.Sprintf("old-%d", i)))
		}
		s.SQL(`CREATE PUBLICATION ` + s.Slot + ` FOR ALL TABLES`)
		s.Init("--no-backfill")
		r := s.Start()
		stop := s.Load(200)
		noise := func(i int) {
			s.SQL(fmt.Sprintf(`
				UPDATE other SET note = note || %[1]d WHERE id <= 10;
				DELETE FROM outbox WHERE aggregateid IN ('old-%[1]d', 'old-%[2]d', 'old-%[3]d');
				INSERT INTO emptied SELECT generate_series(1, 20);
				%[4]s
				TRUNCATE emptied;
				DELETE FROM other WHERE id = 100 - %[1]d;
				SELECT pg_logical_emit_message(true, 'ours', 'not an event');
				SELECT pg_logical_emit_message(false, 'ours', 'not an event either');
				UPDATE outbox SET traceparent = 'read' WHERE aggregateid = 'amid-%[1]d';
				%[5]s`, i, 10+i, 20+i, stand.Insert("outbox", "order", fmt.Sprintf("amid-%d", i)), stand.Insert("outbox", "order", fmt.Sprintf("end-%d", i))))
			s.More(20)
		}
		for i := range 5 {
			noise(i)
		}
		s.KillUnreported(r, func() { s.Write(30) })
		bound := s.Unreported()
		s.Start()
		for i := range 5 {
			noise(5 + i)
		}
		stop()
		s.Check(bound)
	})
}

// The table changes in the middle of the stream, and with it the shape of its rows: columns come,
// go and get other names (a list in the mapping names them all), and the table itself is called
// otherwise for a while.
func TestTableChangesUnderLoad(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.Outbox = "type: [type, event_type], key: [order_id, aggregateid], traceparent: [traceparent, trace_context]"
		s.Start()
		stop := s.Load(200)
		changes := []string{
			`ALTER TABLE outbox ADD COLUMN region text NOT NULL DEFAULT 'eu'`,
			`ALTER TABLE outbox DROP COLUMN created_at`,
			`ALTER TABLE outbox RENAME COLUMN traceparent TO trace_context`,
			`ALTER TABLE outbox RENAME COLUMN type TO event_type;
				INSERT INTO outbox (id, aggregatetype, aggregateid, event_type, payload)
					VALUES (gen_random_uuid(), 'order', 'renamed-type', 'placed', '{"key": "renamed-type", "seq": 1}');
				ALTER TABLE outbox RENAME COLUMN event_type TO type`,
			`ALTER TABLE outbox RENAME COLUMN aggregateid TO order_id;
				INSERT INTO outbox (id, aggregatetype, order_id, type, payload)
					VALUES (gen_random_uuid(), 'order', 'renamed-key', 'placed', '{"key": "renamed-key", "seq": 1}');
				ALTER TABLE outbox RENAME COLUMN order_id TO aggregateid`,
			`ALTER TABLE outbox RENAME TO outbox_for_a_while; ` + stand.Insert("outbox_for_a_while", "order", "renamed-table") + `
				ALTER TABLE outbox_for_a_while RENAME TO outbox`,
			`ALTER TABLE outbox DROP COLUMN region, ADD COLUMN created_at timestamptz`,
		}
		for _, change := range changes {
			s.More(20)
			s.SQL(change)
		}
		s.More(20)
		stop()
		s.Check(0)
	})
}

// A change that the mapping does not fit ends the relay before a row of the new shape is passed.
// Once the mapping names the new column too, the relay goes on where it was.
func TestTableChangesBeyondTheMapping(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		s.Write(30)
		s.SQL(`ALTER TABLE outbox RENAME COLUMN payload TO body;
			INSERT INTO outbox (id, aggregatetype, aggregateid, type, body)
				VALUES (gen_random_uuid(), 'order', 'renamed', 'placed', '{"key": "renamed", "seq": 1}');
			ALTER TABLE outbox RENAME COLUMN body TO payload`)
		s.Write(30)
		s.Exits(r, 4, "public.outbox", `payload`)
		bound := s.Unreported()
		s.Outbox = "payload: [payload, body]"
		s.Start()
		s.Check(bound)
	})
}
