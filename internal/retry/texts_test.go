package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// texts are those of the bench's slot, in alphabetical order.
func (w *database) texts(b *bench) (list []string) {
	b.Helper()
	w.scan(`SELECT coalesce(array_agg(text ORDER BY text COLLATE "C"), '{}') FROM cdc_relay.error_text WHERE slot = $1`, []any{b.c.Slot}, &list)
	return list
}

// says gives a row the words of a refusal.
func says(row *Row, words string) *Row {
	row.Class, row.Reason, row.Words, row.Destination = sink.Destination, sink.NoExchange, words, `exchange "e"`
	return row
}

// A text goes when the last row has gone that refers to it, in whichever table and however it went; another slot's stays.
func testTextsExpire(b *bench, w *database) {
	none := outbox.Route{}
	fed, told, buried, kept := says(b.row("a", 1, 1), "no a"), says(b.row("b", 1, 1), "no b"), says(b.row("c", 1, 1), "no c"), says(b.row("d", 1, 1), "no d")
	letter, same := b.letter("e"), says(b.row("f", 1, 1), "no d")
	b.park(fed, told, buried, kept, same)
	other := newBench(b.T, w)
	other.park(says(other.row("a", 1, 1), "no a"))
	expire := func(want ...string) {
		b.Helper()
		for changed, tries := 1, 0; changed > 0; tries++ {
			if tries == 10 {
				b.Fatal("it has never done")
			}
			var err error
			changed, err = b.Expire(await.Context(b.T), time.Nanosecond, 1)
			b.must(err)
		}
		equal(b, "texts", w.texts(b), want)
		equal(b, "of the other slot", w.texts(other), []string{"no a"})
	}
	expire("no a", "no b", "no c", "no d", "too large")
	b.must(b.Apply(await.Context(b.T), []Result{
		{Row: fed, Kind: Delivered},
		{Row: buried, Kind: Dead},
		{Row: same, Kind: Delivered},
		{Row: told, Kind: Backoff, Class: sink.Destination, Reason: sink.NoExchange, Words: "still no b", After: time.Hour},
	}))
	expire("no c", "no d", "still no b", "too large")
	b.answer(b.ask(b.c, Discard, letter.N, none), true, sink.Outcome{})
	expire("no c", "no d", "still no b") // with the letter, which is old enough
	// More than one statement looks at: it goes on where it was.
	for i := range 35 {
		row := says(b.row("k", 1, 1), "no "+string(rune('A'+i)))
		b.park(row)
		b.must(b.Apply(await.Context(b.T), []Result{{Row: row, Kind: Delivered}}))
	}
	for range 15 {
		_, err := b.Expire(await.Context(b.T), time.Nanosecond, 1)
		b.must(err)
	}
	equal(b, "texts", w.texts(b), []string{"no c", "no d", "still no b"})
}

// The words that only purged rows had go with them, at once, and what was said of their replays; others' stay.
func testTextsPurged(b *bench, w *database) {
	row, letter, shared, kept := says(b.row("anna", 1, 1), "no exchange 'anna'"), says(b.row("anna", 1, 1), "not anna's"), says(b.row("anna", 1, 1), "no e"), says(b.row("bob", 1, 1), "no e")
	letter.Dead, kept.Dead = true, true
	b.park(row, letter, shared, kept)
	to := outbox.Route{Name: []byte("to-anna"), RoutingKey: []byte("anna")}
	failed := b.ask(b.c, Replay, letter.N, to)
	b.answer(failed, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Words: "anna is no name"}})
	others := b.ask(b.c, Replay, kept.N, to)
	b.answer(others, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Words: "no e"}})
	equal(b, "texts", w.texts(b), []string{"anna is no name", "no e", "no exchange 'anna'", "not anna's"})
	// Together, and beside a replay that is refused with the words of one of them.
	again := b.ask(b.c, Replay, kept.N, outbox.Route{})
	answers := []Answer{{Request: b.request(again), Outcome: sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Words: "no exchange 'anna'"}}}}
	for _, r := range []*Row{row, letter, shared} {
		answers = append(answers, Answer{Request: b.request(b.ask(b.c, Purge, r.N, outbox.Route{}))})
	}
	_, err := b.Answer(await.Context(b.T), answers)
	b.must(err)
	b.wantWhere("purged", row, letter, shared)
	equal(b, "texts", w.texts(b), []string{"no e", "no exchange 'anna'", "not anna's"})
	_, err = b.Expire(await.Context(b.T), 0, 10) // what a row had said before goes a little later
	b.must(err)
	equal(b, "texts", w.texts(b), []string{"no exchange 'anna'"})
	b.wantAsked(failed, "failed", wordsPurged)
	b.wantAsked(others, "failed", "no_exchange: no e")
	var left string
	w.scan(`SELECT coalesce(string_agg(r::text, ' '), '') FROM cdc_relay.request r WHERE slot = $1 AND n <> $2 AND (route_name IS NOT NULL OR routing_key IS NOT NULL)`, []any{b.c.Slot, kept.N}, &left)
	equal(b, "requests that name a place", left, "")
	equal(b, "audit", b.audit(letter.N)[0], "ann, replay, "+letter.Event.Position.String()+", why, invalid")
	b.answer(b.ask(b.c, Purge, kept.N, outbox.Route{}), true, sink.Outcome{})
	equal(b, "texts", w.texts(b), []string{})
}

// A text that nobody has yet is not removed before the statement that needs it is committed.
func testTextInUse(b *bench, w *database) {
	w.exec(`CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'`)
	b.Cleanup(func() { w.exec(`DROP FUNCTION waits() CASCADE`) })
	for name, remove := range map[string]func(purge Answer) error{
		"expire": func(Answer) error { _, err := b.Expire(await.Context(b.T), 0, 10); return err },
		"purge":  func(purge Answer) error { _, err := b.Answer(await.Context(b.T), []Answer{purge}); return err },
	} {
		used, letter := says(b.row(name, 1, 1), "no "+name), says(b.row(name, 1, 1), "no "+name)
		letter.Dead = true
		b.park(letter)
		purge := Answer{Request: b.request(b.ask(b.c, Purge, letter.N, outbox.Route{}))}
		if name == "expire" {
			w.exec(`UPDATE cdc_relay.dead_letter SET error_id = NULL WHERE n = $1`, letter.N)
		}
		w.exec(`CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON cdc_relay.retry DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION waits()`)
		tx, err := w.conn.Begin(await.Context(b.T))
		b.must(err)
		_, err = tx.Exec(await.Context(b.T), `SELECT pg_advisory_xact_lock(1)`)
		b.must(err)
		parked, removed := make(chan error, 1), make(chan error, 1)
		go func() { parked <- b.Park(await.Context(b.T), []*Row{used}) }()
		await.Until(b.T, "the park to wait", func() (waits bool) {
			b.must(tx.QueryRow(await.Context(b.T), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits))
			return waits
		})
		go func() { removed <- remove(purge) }()
		select {
		case err := <-removed:
			b.Errorf("%s did not wait: %v", name, err)
			removed <- nil
		case <-time.After(50 * time.Millisecond):
		}
		b.must(tx.Commit(await.Context(b.T)))
		b.must(<-parked)
		b.must(<-removed)
		w.exec(`DROP TRIGGER waits ON cdc_relay.retry`)
		equal(b, "words", b.runs(all, used.Chain)[0].Rows[0].Words, "no "+name)
		b.must(b.Apply(await.Context(b.T), []Result{{Row: used, Kind: Delivered}}))
	}
}
