package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// says gives a row the error text of a rejection.
func says(row *store.Row, text string) *store.Row {
	row.Class, row.Reason, row.Text, row.Destination = sink.Destination, sink.NoExchange, text, `exchange "e"`
	return row
}

// Nothing is left of a purged row but its position and what says nothing of the event, however it
// became a dead letter.
func testPurgedRows(b *bench, w *database) {
	direct, moved, deferred := says(b.row("person", 1, 1), "no person 7"), says(b.row("person", 1, 1), "no person 7"), says(b.row("person", 1, 1), "no person 7")
	direct.Dead = true
	for _, row := range []*store.Row{direct, moved, deferred} {
		row.Event.Origin = event.Origin{Relation: 7, Tx: 5}
	}
	b.deferRow(direct, moved, deferred)
	b.answer(b.Ask(b.c, store.DeadLetter, moved.N, event.Route{}), true, sink.Outcome{})
	for _, row := range []*store.Row{direct, moved, deferred} {
		b.answer(b.Ask(b.c, store.Purge, row.N, event.Route{}), true, sink.Outcome{})
		digest := sent.Digest(5, row.Event.ID)
		var n int64
		if !w.scan(`UPDATE cdc_relay.dead_letter SET relation = NULL, tx = NULL, digest = NULL WHERE n = $1 AND relation = 7 AND tx = 5 AND digest = $2 RETURNING n`, []any{row.N, digest}, &n) {
			b.Error("a purged row does not tell which row of the outbox it was")
		}
		var left string
		w.scan(`SELECT (to_jsonb(d) - '{slot,system_id,incarnation,commit_lsn,idx,n,deferred_at,died_at,closed_at,commit_time,event_time,state,class,reason,
			attempts,payload_kind,first_failed_at,failed_at}'::text[])::text FROM cdc_relay.dead_letter d WHERE n = $1`, []any{row.N}, &left)
		for _, v := range []string{": null", ": 0", ": false", `: ""`} {
			left = strings.ReplaceAll(left, v, ":")
		}
		if i := strings.Index(strings.ReplaceAll(left, ":,", ""), ": "); i >= 0 || strings.Contains(left, "person") {
			b.Errorf("left of a purged row: %s", left)
		}
	}
}

// The broker's own words are kept beside those without numbers, with the row that they are about,
// until another refusal has others, or its contents are removed.
func testErrorText(b *bench, w *database) {
	wants := func(table string, row *store.Row, want string) {
		b.Helper()
		var text string
		w.scan(`SELECT coalesce(error_text, '-') FROM cdc_relay.`+table+` WHERE n = $1`, []any{row.N}, &text)
		equal(b, "error text", text, want)
	}
	row, plain := says(b.row("k", 1, 1), "no exchange x1"), says(b.row("l", 1, 1), "no exchange")
	b.deferRow(row, plain)
	wants("retry", row, "no exchange x1")
	wants("retry", plain, "-")
	apply := func(kind store.ResultKind, reason sink.Reason, text string) {
		b.Helper()
		b.must(b.ApplyResults(await.Context(b.T), []store.Result{{Row: row, Kind: kind, Class: sink.Transient, Reason: reason, Text: text, Attempts: 1}}))
	}
	apply(store.Backoff, sink.Nacked, "queue 2 is full")
	wants("retry", row, "queue 2 is full")
	apply(store.Backoff, "", "")
	wants("retry", row, "queue 2 is full")
	apply(store.Dead, sink.BrokerException, strings.Repeat("541 ", store.FullTextSize))
	wants("dead_letter", row, strings.Repeat("541 ", store.FullTextSize/4))
	failed := b.Ask(b.c, store.Replay, row.N, event.Route{Name: []byte("elsewhere")})
	b.answer(failed, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: "anna is no name"}})
	b.answer(b.Ask(b.c, store.Redact, row.N, event.Route{}), true, sink.Outcome{})
	wants("dead_letter", row, "-")
	b.wantAsked(failed, "failed", store.TextPurged)
	var to string
	w.scan(`SELECT route_name::text FROM cdc_relay.request WHERE id = $1`, []any{failed}, &to)
	equal(b, "where the replay went", to, `\x656c73657768657265`)
}

// The results of a purged row's replays are purged with it; others' requests stay as they are.
func testPurgedRequests(b *bench, w *database) {
	deadLetter, kept := says(b.row("anna", 1, 1), "not anna's"), says(b.row("bob", 1, 1), "no e")
	deadLetter.Dead, kept.Dead = true, true
	b.deferRow(deadLetter, kept)
	to := event.Route{Name: []byte("to-anna"), RoutingKey: []byte("anna")}
	failed := b.Ask(b.c, store.Replay, deadLetter.N, to)
	b.answer(failed, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: "anna is no name"}})
	others := b.Ask(b.c, store.Replay, kept.N, to)
	b.answer(others, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Text: "no e"}})
	// Together with a replay that is refused.
	again := b.Ask(b.c, store.Replay, kept.N, event.Route{})
	_, err := b.AnswerRequests(await.Context(b.T), []store.Answer{
		{Request: b.request(again), Outcome: sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: "no e"}}},
		{Request: b.request(b.Ask(b.c, store.Purge, deadLetter.N, event.Route{}))},
	})
	b.must(err)
	b.wantWhere("purged", deadLetter)
	b.wantAsked(failed, "failed", store.TextPurged)
	b.wantAsked(others, "failed", "no_exchange: no e")
	var left string
	w.scan(`SELECT coalesce(string_agg(r::text, ' '), '') FROM cdc_relay.request r WHERE slot = $1 AND n <> $2 AND (route_name IS NOT NULL OR routing_key IS NOT NULL)`, []any{b.c.Slot, kept.N}, &left)
	equal(b, "requests that name a place", left, "")
	equal(b, "audit", b.audit(deadLetter.N)[0], "ann, replay, "+deadLetter.Event.Position.String()+", why, invalid")
}

// walsender is a session that reads a slot and reports what it is told to.
type walsender struct {
	t    *testing.T
	w    *database
	slot string
	conn *pgconn.PgConn
}

func (s *walsender) start() {
	s.t.Helper()
	cfg, err := pgconn.ParseConfig(s.w.url)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.RuntimeParams["replication"] = "database"
	if s.conn, err = pgconn.ConnectConfig(await.Context(s.t), cfg); err != nil {
		s.t.Fatal(err)
	}
	err = pglogrepl.StartReplication(await.Context(s.t), s.conn, s.slot, 0, pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", "publication_names 'p'"}})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *walsender) stop() { _ = s.conn.Close(context.Background()) }

// look reads what the view says of the slot.
func (s *walsender) look() (v slotSeen) {
	s.t.Helper()
	var restart, flush string
	s.w.scan(`SELECT coalesce(active_pid, 0), restart_lsn::text, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, []any{s.slot}, &v.pid, &restart, &flush)
	for text, to := range map[string]*pglogrepl.LSN{restart: &v.restart, flush: &v.flush} {
		lsn, err := pglogrepl.ParseLSN(text)
		if err != nil {
			s.t.Fatal(err)
		}
		*to = lsn
	}
	return v
}

const insertEvent = `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'a', 'k', 't')`

// report says that all up to the end of the WAL is flushed, and returns when the slot shows it.
func (s *walsender) report() {
	s.t.Helper()
	s.w.exec(insertEvent)
	var text string
	s.w.scan(`SELECT pg_current_wal_lsn()::text`, nil, &text)
	at, err := pglogrepl.ParseLSN(text)
	if err != nil {
		s.t.Fatal(err)
	}
	for s.look().flush < at {
		c, cancel := context.WithTimeout(await.Context(s.t), 5*time.Millisecond)
		for err = nil; err == nil; {
			_, err = s.conn.ReceiveMessage(c) // what was sent is read, or the walsender would wait
		}
		cancel()
		if !pgconn.Timeout(err) {
			s.t.Fatal(err)
		}
		err := pglogrepl.SendStandbyStatusUpdate(await.Context(s.t), s.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: at})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// A bare position stays until the slot, as the server saved it, is past it: also after a crash of
// the server.
func TestBarePositionStaysUntilTheSlotIsSaved(t *testing.T) {
	server := servers.OwnPostgres(t)
	w := newDatabase(t, server, "")
	b := newBench(t, w)
	s := &walsender{t: t, w: w, slot: b.c.Slot}
	w.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, s.slot)
	s.start()
	// keeps restart_lsn where it is
	open, err := connect(t, w.conn.Config().ConnString()).Begin(await.Context(t))
	b.must(err)
	_, err = open.Exec(await.Context(t), insertEvent)
	b.must(err)
	s.report()

	deadLetter := b.row("k", 1, 1)
	deadLetter.Dead = true
	deadLetter.Event.Origin = event.Origin{Relation: 7, Tx: 5}
	deadLetter.Event.Position.Commit = s.look().flush
	b.deferRow(deadLetter)
	b.answer(b.Ask(b.c, store.Purge, deadLetter.N, event.Route{}), true, sink.Outcome{})
	expire := func(want string) {
		t.Helper()
		if _, err := b.ExpireDeadLetters(await.Context(t), 0, 10); err != nil {
			t.Fatal(err)
		}
		b.wantWhere(want, deadLetter)
	}
	for range 3 { // confirmed, but the server has no reason to save it
		s.report()
		expire("purged")
	}
	if v := s.look(); v.restart > deadLetter.Event.Position.Commit || v.flush <= deadLetter.Event.Position.Commit {
		t.Fatalf("the slot is not where this test needs it: %+v, dead letter at %s", v, deadLetter.Event.Position)
	}
	b.must(open.Commit(await.Context(t)))
	pass := func() {
		t.Helper()
		await.Until(t, "restart_lsn to move", func() bool {
			w.exec(`CHECKPOINT`) // writes which transactions run
			s.report()
			return s.look().restart > deadLetter.Event.Position.Commit
		}, func() any { return s.look() })
	}
	pass()
	expire("purged") // read for the first time: it may be on its way to the disk
	expire("purged")
	s.stop()
	await.Until(t, "the walsender to end", func() bool { return s.look().pid == 0 })
	expire("purged")
	s.start()
	s.report()
	expire("purged") // another walsender: the one before may have ended without having saved
	s.report()
	expire("purged") // its row may be in the outbox
	w.exec(`UPDATE cdc_relay.dead_letter SET digest = NULL`)
	s.report()
	expire("")

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if err := server.Start(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	w.conn = connect(t, w.url)
	if v := s.look(); v.flush <= deadLetter.Event.Position.Commit {
		t.Errorf("after the crash the slot sends from %s on: the dead letter at %s again", v.flush, deadLetter.Event.Position)
	}
	if _, err := b.ExpireDeadLetters(await.Context(t), 0, 10); err != nil && errors.Is(err, store.ErrFenced) {
		t.Error(err)
	}
}

// A row is in the sent set once it is delivered from the retry table, or its dead letter is
// replayed: with the statement that removes it, and not before. What becomes of it otherwise
// records nothing.
func testSent(b *bench, w *database) {
	from := func(row *store.Row, tx uint64) *store.Row {
		row.Event.Origin = event.Origin{Relation: 42, Tx: tx}
		return row
	}
	waits, delivered, dies, unknown := from(b.row("k", 1, 1), 9), from(b.row("l", 1, 1), 10), from(b.row("m", 1, 1), 8200), b.row("n", 1, 1)
	dead, discarded := from(b.row("o", 1, 1), 11), from(b.row("p", 1, 1), 12)
	dead.Dead, discarded.Dead = true, true
	b.deferRow(waits, delivered, dies, unknown, dead, discarded)
	want := func(rows ...*store.Row) {
		b.Helper()
		var recorded int
		w.scan(`SELECT coalesce(sum(cardinality(digests)), 0) FROM cdc_relay.sent WHERE slot = $1`, []any{b.c.Slot}, &recorded)
		if recorded != len(rows) {
			b.Errorf("%d rows are recorded, want %d", recorded, len(rows))
		}
		for _, row := range rows {
			o := row.Event.Origin
			digest := sent.Digest(o.Tx, row.Event.ID)
			var there bool
			w.scan(sent.HasSQL, []any{b.c.Slot, []uint32{o.Relation}, sent.Chunk(o.Tx), digest}, &there)
			if !there {
				b.Errorf("row %s is not recorded", row.Event.ID)
			}
		}
	}
	want()
	runs, err := b.ReadRows(await.Context(b.T), wants(delivered.Group), 1, all, all)
	b.must(err)
	if got := runs[0].Rows[0].Event.Origin; got != delivered.Event.Origin {
		b.Errorf("the row is read with origin %+v", got)
	}
	b.must(b.ApplyResults(await.Context(b.T), []store.Result{
		{Row: delivered}, {Row: unknown}, {Row: waits, Kind: store.Backoff, Class: sink.Transient, Reason: sink.NoExchange}, {Row: dies, Kind: store.Dead, Class: sink.Permanent, Reason: sink.TooLarge},
	}))
	want(delivered)
	for kind, row := range map[store.RequestKind]*store.Row{store.Replay: dies, store.Discard: discarded} {
		b.answer(b.Ask(b.c, kind, row.N, event.Route{}), true, sink.Outcome{State: sink.Confirmed})
	}
	want(delivered, dies)
	id := b.Ask(b.c, store.Replay, dead.N, event.Route{})
	b.answer(id, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}})
	want(delivered, dies)
}

// unmirrored reads the numbers of the next dead letters of a mirror.
func (b *bench) unmirrored(limit int, size int64) (ns []int64) {
	b.Helper()
	deadLetters, err := b.mirror(b.c).Unmirrored(await.Context(b.T), 0, limit, size)
	b.must(err)
	for i := range deadLetters {
		ns = append(ns, deadLetters[i].N)
	}
	return ns
}

func testMirror(b *bench) {
	deferred := b.row("k", 1, 1)
	b.deferRow(deferred)
	died := b.row("k", 1, 1)
	b.deferRow(died)
	var rows []*store.Row
	for range 5 {
		rows = append(rows, b.deadLetter("l"))
	}
	raw := b.row("r", 1, 1)
	raw.Dead, raw.Class, raw.Reason, raw.Event.Raw = true, sink.Permanent, sink.Undecodable, []byte(`{"id":null}`)
	b.deferRow(raw)
	// A row that becomes a dead letter has its old number, which is before those of dead letters
	// that were there.
	b.must(b.ApplyResults(await.Context(b.T), []store.Result{{Row: died, Kind: store.Dead, Class: sink.Transient, Reason: sink.BrokerException, Text: "541 of 7", Attempts: 3}}))
	b.answer(b.Ask(b.c, store.Purge, rows[0].N, event.Route{}), true, sink.Outcome{})
	b.answer(b.Ask(b.c, store.Redact, rows[1].N, event.Route{}), true, sink.Outcome{})
	// closed, and a copy of it is wanted all the same
	b.answer(b.Ask(b.c, store.Discard, rows[2].N, event.Route{}), true, sink.Outcome{})
	want := []int64{died.N, rows[2].N, rows[3].N, rows[4].N, raw.N}
	equal(b, "all", b.unmirrored(10, all), want)
	equal(b, "a page", b.unmirrored(2, all), want[:2])
	equal(b, "no bytes", b.unmirrored(10, 1), want[:1])
	size := int64(died.Event.Size())
	equal(b, "bytes of one", b.unmirrored(10, size), want[:1])
	equal(b, "bytes of one, and one", b.unmirrored(10, size+1), want[:2])

	deadLetters, err := b.mirror(b.c).Unmirrored(await.Context(b.T), want[2], 10, all)
	b.must(err)
	if len(deadLetters) != 2 || deadLetters[0].N != want[3] || deadLetters[1].N != want[4] {
		b.Errorf("above %d: %+v", want[2], deadLetters)
	}
	deadLetters, err = b.mirror(b.c).Unmirrored(await.Context(b.T), 0, 10, all)
	b.must(err)
	testMirrorDeadLetters(b, deadLetters, died, rows[2], raw)

	mirror := b.mirror(b.c)
	for range 2 { // what was lost is said once more
		b.must(mirror.NoteMirrored(await.Context(b.T), []int64{rows[3].N, died.N, deferred.N, 99}))
	}
	equal(b, "the rest", b.unmirrored(10, all), []int64{rows[2].N, rows[4].N, raw.N})
	b.must(b.ApplyResults(await.Context(b.T), []store.Result{{Row: deferred, Kind: store.Dead}}))
	equal(b, "with one that was no dead letter yet when it was noted", b.unmirrored(10, all), []int64{deferred.N, rows[2].N, rows[4].N, raw.N})
	other := b.with(func(c *store.Config) { c.SystemID = "7000000000000000009" })
	equal(b, "of another system", other.unmirrored(10, all), nil)
	b.must(other.mirror(other.c).NoteMirrored(await.Context(b.T), []int64{raw.N}))
	equal(b, "what another system has noted", len(b.unmirrored(10, all)), 4)
}

// testMirrorDeadLetters looks at what is read of a row that died, of a dead letter, and of what
// could not be decoded.
func testMirrorDeadLetters(b *bench, deadLetters []dlq.DeadLetterRow, died, deadLetter, raw *store.Row) {
	b.Helper()
	for i, want := range []*store.Row{died, deadLetter} {
		l := &deadLetters[i]
		got, ev := l.Event, want.Event
		equal(b, "position", got.Position, ev.Position)
		equal(b, "commit time", got.CommitTime.Equal(ev.CommitTime) && got.Time.Equal(ev.Time), true)
		equal(b, "event", [][]byte{got.ID, got.Key, got.Aggregate, got.Type, got.Payload, got.Raw}, [][]byte{ev.ID, ev.Key, ev.Aggregate, ev.Type, ev.Payload, nil})
		equal(b, "route", *got.Route, *ev.Route)
		equal(b, "it died just now", time.Since(l.Died).Abs() < time.Hour, true)
	}
	l := &deadLetters[0]
	equal(b, "refusal", []string{l.Class, l.Reason, l.Text}, []string{"transient", "broker_exception", "# of #"})
	equal(b, "attempts", l.Attempts, 3)
	equal(b, "times", l.First != nil && l.Last != nil, true)
	l = &deadLetters[1]
	equal(b, "refusal", []string{l.Class, l.Reason, l.Text}, []string{"permanent", "too_large", "too large"})
	equal(b, "times", l.First == nil && l.Last == nil, true)
	equal(b, "raw", deadLetters[len(deadLetters)-1].Event.Raw, raw.Event.Raw)
}

func testMirrorFence(b *bench) {
	deadLetter := b.deadLetter("l")
	former := b.mirror(b.c)
	b = b.with(func(c *store.Config) { c.Epoch = b.raise(b.c.Slot) })
	var stop *event.Stop
	if err := former.NoteMirrored(await.Context(b.T), []int64{deadLetter.N}); !errors.As(err, &stop) || stop.Reason != "fenced" {
		b.Errorf("got %v, want that it is fenced", err)
	}
	if deadLetters, err := former.Unmirrored(await.Context(b.T), 0, 10, all); !errors.As(err, &stop) || len(deadLetters) > 0 {
		b.Errorf("got %d dead letters, %v, want that it is fenced", len(deadLetters), err)
	}
	equal(b, "not noted", b.unmirrored(10, all), []int64{deadLetter.N})
}
