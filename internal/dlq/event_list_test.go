package dlq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// plain is the outbox table of init.
var plain = Outbox{
	Schema: "public", Table: "outbox", ID: []string{"id"}, Transaction: []string{"tx"},
	Key: []string{"aggregateid"}, Aggregate: []string{"aggregatetype"}, Type: []string{"type"}, Timestamp: []string{"created_at"},
}

func (r *rig) events(f EventFilter, tables ...Outbox) *EventList {
	r.t.Helper()
	if f.Limit == 0 {
		f.Limit = 50
	}
	if f.Key == nil {
		f.Key = []byte("k")
	}
	list, err := r.admin.Events(r.ctx, f, tables, func(context.Context) Relay { return Relay{} })
	r.must(err)
	return list
}

// states are the events of a list, each as its id and state.
func states(list *EventList) (out []string) {
	for _, e := range list.Items {
		out = append(out, shownID(e.ID)+" "+e.State)
	}
	return out
}

func shownID(id *string) string {
	if id == nil {
		return "-"
	}
	return *id
}

func (r *rig) wantEvents(list *EventList, want ...string) {
	r.t.Helper()
	if got := states(list); !slices.Equal(got, want) {
		r.t.Errorf("it lists\n%q, want\n%q (%+v)", got, want, list)
	}
}

// Each event is listed once, with the state that events show has, the newest first.
func TestEventsOfAKey(t *testing.T) {
	r := withSlot(t)
	sent, _ := r.insert()
	dead, _ := r.insert()
	deferred, _ := r.insert()
	fresh, _ := r.insert()
	r.exec(`INSERT INTO public.outbox VALUES (gen_random_uuid(), 'b', 'other', 't')`)
	r.deliver(sent)
	r.put(sample{id: dead, key: "k", aggregate: "a", kind: "t"})
	r.put(sample{id: deferred, key: "k", aggregate: "a", kind: "t", of: Deferred})
	// of an earlier time
	r.put(sample{id: deferred, key: "k", aggregate: "a", kind: "t", state: Replayed})
	r.exec(`UPDATE cdc_relay.retry SET tx = o.tx::text::bigint FROM public.outbox o WHERE o.id::text = convert_from(retry.id, 'UTF8')`)
	r.exec(`UPDATE cdc_relay.dead_letter SET tx = o.tx::text::bigint FROM public.outbox o WHERE o.id::text = convert_from(dead_letter.id, 'UTF8')`)
	list := r.events(EventFilter{}, plain)
	r.wantEvents(list, fresh+" not seen", deferred+" deferred", dead+" dead letter", sent+" delivered")
	if list.More || !list.Complete || len(list.Notes) != 0 {
		t.Errorf("the list is %+v", list)
	}
	if e := list.Items[1]; e.N == 0 || e.Table != "public.outbox" || e.Reason != "too_large" || e.Destination != "orders" {
		t.Errorf("the deferred one is %+v", e)
	}
	r.wantEvents(r.events(EventFilter{Limit: 2}, plain), fresh+" not seen", deferred+" deferred")
	if !r.events(EventFilter{Limit: 2}, plain).More {
		t.Error("it does not say that there are older ones")
	}
	r.wantEvents(r.events(EventFilter{State: EventDelivered, Limit: 1}, plain), sent+" delivered")
	r.wantEvents(r.events(EventFilter{State: EventDeadLetter}, plain), dead+" dead letter")
	r.wantEvents(r.events(EventFilter{Aggregate: []byte("b")}, plain))
	r.wantEvents(r.events(EventFilter{Type: []byte("none")}, plain))
	r.wantEvents(r.events(EventFilter{Type: []byte("t"), Aggregate: []byte("a"), State: EventNotSeen}, plain), fresh+" not seen")
	// a row that was deleted is not guessed
	r.exec(`DELETE FROM public.outbox WHERE aggregateid = 'k'`)
	deletes := plain
	deletes.Deletes = true
	list = r.events(EventFilter{}, deletes)
	r.wantEvents(list, deferred+" deferred", dead+" dead letter")
	if !list.Complete || !strings.Contains(fmt.Sprint(list.Notes), "retention deletes rows of public.outbox") {
		t.Errorf("it notes %q", list.Notes)
	}
}

// A row that the slot is past, and of which nothing is recorded, is not called delivered.
func TestEventsNotKnownToBeSent(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	r.advance(id)
	list := r.events(EventFilter{}, plain)
	// the slot may be behind what others write
	if e := list.Items[0]; e.State != EventUnknown && e.State != EventNotSeen {
		t.Errorf("it is %+v", e)
	}
	r.exec(`UPDATE public.outbox SET tx = NULL`)
	r.wantEvents(r.events(EventFilter{}, plain), id+" not known to be sent")
}

// Times: of the commit, else what the row says, else the row is left out of an interval, and said.
func TestEventsOfATime(t *testing.T) {
	r := setup(t)
	id, _ := r.insert()
	r.exec(`UPDATE public.outbox SET created_at = '2026-11-19T12:00:00Z'`)
	r.put(sample{id: "d", key: "k"}) // at noon of the 20th
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r.wantEvents(r.events(EventFilter{From: noon}, plain), "d dead letter")
	r.wantEvents(r.events(EventFilter{To: noon}, plain), id+" not seen")
	timeless := plain
	timeless.Timestamp = nil
	list := r.events(EventFilter{To: noon}, timeless) // by created_at
	r.wantEvents(list, id+" not seen")
	if !list.Complete || len(list.Items) != 1 || list.Items[0].EventTime == nil || !strings.Contains(fmt.Sprint(list.Notes), `of public.outbox are those of its column "created_at"`) {
		t.Errorf("by its own time it is %+v", list)
	}
	r.exec(`ALTER TABLE public.outbox ALTER created_at DROP DEFAULT, ADD COLUMN other timestamptz`)
	list = r.events(EventFilter{From: noon}, timeless)
	r.wantEvents(list, "d dead letter")
	if list.Complete || !strings.Contains(fmt.Sprint(list.Notes), "1 rows of public.outbox are left out") {
		t.Errorf("it notes %q", list.Notes)
	}
	r.exec(`UPDATE public.outbox SET created_at = 'infinity'`)
	r.wantEvents(r.events(EventFilter{State: EventNotSeen}, plain), id+" not seen")
}

// A large table is read by an index, or the index is named that it lacks, also of partitions.
func TestEventsOfALargeTable(t *testing.T) {
	r := setup(t)
	fill := func(table string, key string, rows int) {
		r.exec(fmt.Sprintf(`INSERT INTO %s (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'a', %s, 't', to_jsonb(repeat('x', 900)) FROM generate_series(1, %d) g`, table, key, rows))
	}
	fill("public.outbox", "'other'", 20_000) // 20 MB
	id, _ := r.insert()
	list := r.events(EventFilter{}, plain)
	r.wantEvents(list)
	want := `CREATE INDEX CONCURRENTLY ON public.outbox ("aggregateid", "tx")`
	if list.Complete || len(list.Missing) != 1 || len(list.Missing[0].SQL) != 1 || list.Missing[0].SQL[0] != want {
		t.Fatalf("it lacks %+v, want %s; %q", list.Missing, want, list.Notes)
	}
	for _, other := range []string{`(aggregateid) WHERE type = 't'`, `(aggregatetype, aggregateid)`, `(lower(aggregateid))`, `(type, aggregateid)`} {
		r.exec(`CREATE INDEX useless ON public.outbox ` + other)
		if list := r.events(EventFilter{}, plain); list.Complete {
			t.Errorf("with an index on %s: %+v", other, list)
		}
		r.exec(`DROP INDEX public.useless`)
	}
	r.exec(`CREATE INDEX by_both ON public.outbox (aggregatetype, aggregateid)`)
	r.wantEvents(r.events(EventFilter{Aggregate: []byte("a")}, plain), id+" not seen")
	r.exec(`DROP INDEX public.by_both`)
	r.exec(list.Missing[0].SQL[0])
	list = r.events(EventFilter{}, plain)
	r.wantEvents(list, id+" not seen")
	if !list.Complete {
		t.Errorf("with the index it is %+v", list)
	}
	if list := r.events(EventFilter{Key: []byte("other"), Limit: 3}, plain); len(list.Items) != 3 || !list.More || !list.Complete {
		t.Errorf("the newest of many are %+v", list)
	}
	r.exec(`DROP INDEX public.outbox_aggregateid_tx_idx; CREATE INDEX by_key ON public.outbox (aggregateid)`)
	if list := r.events(EventFilter{Key: []byte("other"), Limit: 3}, plain); list.Complete || len(list.Missing) != 1 || !strings.Contains(list.Missing[0].Why, "more than 10000 of its rows") {
		t.Errorf("without the order they are %+v", list)
	}

	r.exec(`CREATE TABLE public.parts (LIKE public.outbox INCLUDING DEFAULTS) PARTITION BY LIST (aggregateid);
		CREATE TABLE public.part_k PARTITION OF public.parts FOR VALUES IN ('k'); CREATE TABLE public.part_rest PARTITION OF public.parts DEFAULT`)
	fill("public.parts", "'other'", 20_000)
	fill("public.parts", "'k'", 1)
	parts := plain
	parts.Table = "parts"
	list = r.events(EventFilter{}, parts)
	if len(list.Missing) != 1 || len(list.Missing[0].SQL) != 3 {
		t.Fatalf("of partitions it lacks %+v", list.Missing)
	}
	for _, sql := range list.Missing[0].SQL {
		r.exec(sql)
	}
	if list := r.events(EventFilter{}, parts); len(list.Items) != 1 || !list.Complete {
		t.Errorf("of partitions with indexes it lists %+v", list)
	}
}

// All deferred rows of some ids are read, also when a page is too small for them: one missed
// would be taken for an event that waits nowhere.
func TestEventsOfMoreThanAPage(t *testing.T) {
	r := setup(t)
	var ids [][]byte
	for i := range 1100 {
		id := strings.Repeat("x", listText-10) + fmt.Sprint(i)
		ids = append(ids, []byte(id))
		r.put(sample{id: id, key: "k", of: Deferred})
	}
	s := eventSearch{a: r.admin}
	rows, err := s.ofIDs(r.ctx, Deferred, ids)
	r.must(err)
	if len(rows) != len(ids) || s.older {
		t.Errorf("%d rows are read, want %d", len(rows), len(ids))
	}
}

// Keys of other types, of two columns, and of a table that must not be read.
func TestEventsOfOtherTables(t *testing.T) {
	r := setup(t)
	r.exec(`CREATE TABLE public.numbers (n bigint, old_key bigint, new_key text, kind char(8)); INSERT INTO public.numbers VALUES (1, 42, NULL, 'a'), (2, 7, '42', 'b'), (3, 42, '7', 'c');
		CREATE TYPE public.color AS ENUM ('red'); CREATE TABLE public.colors (id text, color public.color); INSERT INTO public.colors VALUES ('c', 'red');
		CREATE VIEW public.seen AS SELECT * FROM public.outbox`)
	numbers := Outbox{Schema: "public", Table: "numbers", ID: []string{"n"}, Key: []string{"new_key", "old_key"}, Type: []string{"kind"}}
	list := r.events(EventFilter{Key: []byte("42")}, numbers)
	got := states(list)
	slices.Sort(got)
	if !slices.Equal(got, []string{"1 not known to be sent", "2 not known to be sent"}) {
		t.Errorf("it lists %q", got)
	}
	r.wantEvents(r.events(EventFilter{Key: []byte("42"), Type: []byte("b")}, numbers), "2 not known to be sent")
	r.wantEvents(r.events(EventFilter{Key: []byte("no number")}, numbers))
	// dead letters have the key as the column has it; the row of the second is gone
	r.put(sample{id: "1", key: "42"})
	r.put(sample{id: "9", key: "42"})
	got = states(r.events(EventFilter{Key: []byte("042")}, numbers))
	slices.Sort(got)
	if !slices.Equal(got, []string{"1 dead letter", "9 dead letter"}) {
		t.Errorf("by another form of the key it lists %q", got)
	}
	// rows of a table that inherits are its own
	r.exec(`CREATE TABLE public.base (id text, key text); CREATE TABLE public.heir () INHERITS (public.base); INSERT INTO public.base VALUES ('b', 'k'); INSERT INTO public.heir VALUES ('h', 'k')`)
	base := Outbox{Schema: "public", Table: "base", ID: []string{"id"}, Key: []string{"key"}}
	heir := base
	heir.Table = "heir"
	r.wantEvents(r.events(EventFilter{}, base), "b not known to be sent")
	r.wantEvents(r.events(EventFilter{}, base, heir), "b not known to be sent", "h not known to be sent")
	colors := Outbox{Schema: "public", Table: "colors", ID: []string{"id"}, Key: []string{"color"}}
	r.wantEvents(r.events(EventFilter{Key: []byte("red")}, colors), "c not known to be sent")
	r.wantEvents(r.events(EventFilter{Key: []byte("red")}, Outbox{Schema: "public", Table: "colors", ID: []string{"id"}}, Outbox{Schema: "public", Table: "no table", ID: []string{"id"}, Key: []string{"k"}}))
	view := plain
	view.Table = "seen"
	if list := r.events(EventFilter{}, view); list.Complete || !strings.Contains(fmt.Sprint(list.Notes), "is a view") {
		t.Errorf("of a view it says %+v", list)
	}
	for _, bad := range []EventFilter{{Limit: 1}, {Key: []byte("k")}, {Key: []byte("k"), Limit: 1, State: "open"}} {
		if _, err := r.admin.Events(r.ctx, bad, nil, says(Relay{})); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// A large retry table without an index on the key is not read whole: the events are listed whose
// rows are in an outbox table.
func TestEventsBesideALargeRetryTable(t *testing.T) {
	r := setup(t)
	id, _ := r.insert()
	r.put(sample{id: id, key: "k", of: Deferred})
	r.put(sample{id: "gone", key: "k", of: Deferred})
	s := eventSearch{a: r.admin, f: &EventFilter{Key: []byte("k")}, rows: []keyRow{{outboxRow: outboxRow{id: id}}}}
	slow, err := r.admin.retryWithoutIndex(r.ctx, Deferred, 0)
	r.must(err)
	if !slow {
		t.Error("it has no index on the key, and that is not noticed")
	}
	held, err := s.held(r.ctx, 0)
	r.must(err)
	if len(held) != 1 || *held[0].ID != id || s.whole || len(s.notes) != 1 {
		t.Errorf("of the retry table it has %+v, %q", held, s.notes)
	}
	r.exec(retryIndexSQL)
	if slow, err = r.admin.retryWithoutIndex(r.ctx, Deferred, 0); err != nil || slow {
		t.Errorf("with the index: %v, %v", slow, err)
	}
}
