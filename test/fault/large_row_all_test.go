//go:build testall

package fault

import (
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A large event is to be deferred, and PostgreSQL does not write its row in time. It waits alone,
// with what follows it of its key: the others are deferred, and delivered when they may. Nothing is
// lost: the slot stays before it, and it comes when the cause has passed.
func TestLargeRowThatIsNotWrittenInTime(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.WatchFlush()
	s.Sink = "exchange: later.events"
	s.DeclareExchange("later.events")
	r := s.Start()
	s.SQL(`CREATE FUNCTION too_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$`)
	s.SQL(`CREATE TRIGGER too_slow BEFORE INSERT ON cdc_relay.retry FOR EACH ROW WHEN (NEW.bytes > 5000000) EXECUTE FUNCTION too_slow()`)
	var behind [2]pglogrepl.LSN                // the large event, and one that follows it
	for seq, size := range []int{200_000, 1} { // of 32 bytes
		s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', 'large', 'placed',
			jsonb_build_object('key', 'large', 'seq', $1::int, 'fill', string_agg(md5(i::text), '')) FROM generate_series(1, $2::int) i`, seq+1, size)
		s.Query([]any{&behind[seq]}, `SELECT pg_current_wal_insert_lsn()`)
	}
	s.Write(100)
	s.AwaitRows(checker.Deferred, s.Committed())
	s.Until("the large row to be refused", func() bool { return s.Metric(r, "outbox_refused_rows") == 1 })
	said := operated(s, "status", "--admin", r.AdminSocket()).Stdout
	for _, words := range []string{"refused    1 row by the database", "statement timeout", "1 event behind it"} {
		if !strings.Contains(said, words) {
			t.Errorf("the status does not say %q: %s", words, said)
		}
	}
	s.MakeExchange("later.events")
	s.Until("the others to be delivered", func() bool { return s.RowsIn(checker.Deferred) == 0 })
	if n, _ := s.Consumer.Count(); n != s.Committed() {
		t.Errorf("%d events have arrived, want those of other keys", n)
	}
	s.Must(r.Kill())
	s.Gone()
	if now := s.Flush(); now > behind[0] {
		t.Errorf("the slot has gone on to %s, and the large event is before %s", now, behind[0])
	}
	bound := s.Unreported()
	s.SQL(`DROP TRIGGER too_slow ON cdc_relay.retry`)
	r = s.Start()
	s.Check(bound)
	stopped(s, r, 0)
}
