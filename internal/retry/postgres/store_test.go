package postgres

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func TestMain(m *testing.M) { servers.Main(m) }

// world is what a store stands on: a database that others look into and change too.
type world interface {
	store(c store.Config) store.Store
	mirror(c store.Config) dlq.MirrorStore
	raise(slot string) int64 // a new leader; its epoch
	Ask(c store.Config, kind store.RequestKind, n int64, route event.Route) int64
	cancel(id int64)
	Asked(id int64) (state, result string)
	audit(n int64) []string // "who, what, position, why, result"
	where(n int64) string   // deferred, or the state of the dead letter; "": nowhere
}

// bench is a store of one slot with a leader, in a world where other tests have other slots.
type bench struct {
	*testing.T
	world
	store.Store
	c     store.Config
	at    uint32 // index of the newest row
	lease int64
}

var slots int

func newBench(t *testing.T, w world) *bench {
	slots++
	b := &bench{T: t, world: w, c: store.Config{Slot: fmt.Sprintf("slot%d", slots), SystemID: "7000000000000000001", Incarnation: 2}}
	b.c.Epoch = w.raise(b.c.Slot)
	b.Store = w.store(b.c)
	return b
}

// with is another bench on the same slot, whose store is configured otherwise.
func (b *bench) with(change func(*store.Config)) *bench {
	o := *b
	change(&o.c)
	o.Store = b.store(o.c)
	return &o
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// row is a row of a key that goes to a destination of an exchange or topic.
func (b *bench) row(key string, exchangeOrTopic, dest uint64) *store.Row {
	b.Helper()
	if b.lease%store.LeaseSize == 0 {
		first, err := b.LeaseNumbers(await.Context(b.T))
		b.must(err)
		b.lease = first - 1
	}
	b.lease++
	b.at++
	ev := event.Event{
		Position:   event.Position{Commit: pglogrepl.LSN(0x1_0000_0000 + uint64(b.at)/10), Index: b.at % 10},
		CommitTime: time.Date(2025, 11, 20, 12, 0, 0, 123456000, time.UTC), Time: time.Date(2025, 11, 20, 11, 0, 0, 0, time.UTC),
		ID: fmt.Appendf(nil, "id%d", b.at), Aggregate: []byte("order"), Key: []byte(key), Type: []byte("created"), Payload: []byte(`{}`),
		Ordered: true, Hash: uint64(*event.Digest([]byte(key))),
		Route: &event.Route{Name: fmt.Appendf(nil, "unit%d", int64(exchangeOrTopic)), RoutingKey: fmt.Appendf(nil, "dest%d", int64(dest))},
	}
	row := &store.Row{N: b.lease, Incarnation: b.c.Incarnation, Event: ev, ExchangeOrTopic: exchangeOrTopic, Dest: dest}
	row.Group, row.Ordered = b.c.Scope.Group(&ev, exchangeOrTopic)
	return row
}

func (b *bench) rows(n int, key string, exchangeOrTopic, dest uint64) []*store.Row {
	list := make([]*store.Row, n)
	for i := range list {
		list[i] = b.row(key, exchangeOrTopic, dest)
	}
	return list
}

func (b *bench) deferRow(rows ...*store.Row) { b.Helper(); b.must(b.Defer(await.Context(b.T), rows)) }

// deadLetter writes a dead letter.
func (b *bench) deadLetter(key string) *store.Row {
	b.Helper()
	row := b.row(key, 1, 1)
	row.Dead, row.Class, row.Reason, row.Text, row.Destination = true, sink.Permanent, sink.TooLarge, "too large", `exchange "e"`
	b.deferRow(row)
	return row
}

const all = 1 << 40

// wants are ordering groups from their start on.
func wants(groups ...uint64) (list []store.Want) {
	for _, group := range groups {
		list = append(list, store.Want{Group: group})
	}
	return list
}

// runs reads ordering groups from their start on.
func (b *bench) runs(acked int64, groups ...uint64) []store.RowRun {
	b.Helper()
	runs, err := b.ReadRows(await.Context(b.T), wants(groups...), 1000, all, acked)
	b.must(err)
	equal(b, "answers", len(runs), len(groups))
	return runs
}

// numbers are those of the rows of a run.
func numbers(rows []*store.Row) []int64 {
	list := []int64{}
	for _, r := range rows {
		list = append(list, r.N)
	}
	return list
}

func (b *bench) wantRows(group uint64, want ...*store.Row) {
	b.Helper()
	run := b.runs(all, group)[0]
	if run.Group != group || run.Blocked || run.More || !slices.Equal(numbers(run.Rows), numbers(want)) {
		b.Fatalf("ordering group %x: got %+v, want rows %v", group, run, numbers(want))
	}
}

func (b *bench) wantWhere(want string, rows ...*store.Row) {
	b.Helper()
	for _, r := range rows {
		if got := b.where(r.N); got != want {
			b.Fatalf("row %d is %q, want %q", r.N, got, want)
		}
	}
}

// regroup is RegroupRows.
func (b *bench) regroup() (highest event.Position) {
	b.Helper()
	highest, err := b.RegroupRows(await.Context(b.T))
	b.must(err)
	return highest
}

// next is the bench of the next leader, with that ordering.
func (b *bench) next(s event.Scope) *bench {
	return b.with(func(c *store.Config) { c.Epoch, c.Scope = b.raise(b.c.Slot), s })
}

// failer is a *testing.T or a bench.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func equal[T any](t failer, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %+v, want %+v", what, got, want)
	}
}

// conformance is what both stores must do.
var conformance = map[string]func(*bench){
	"round trip":            testRoundTrip,
	"columns by name":       testColumnsByName,
	"shape":                 testShape,
	"deferred twice":        testDeferredTwice,
	"another event":         testAnotherEvent,
	"regroup by all orders": testRescope,
	"regroup in pages":      testRegroupInPages,
	"regroup":               testRegroup,
	"exchanges":             testExchanges,
	"missing":               testMissing,
	"positions":             testPositions,
	"read":                  testRead,
	"read behind a row":     testReadBehind,
	"held by a dead letter": testHold,
	"sweep":                 testSweep,
	"apply":                 testApply,
	"refusals":              testRefusals,
	"requests":              testRequests,
	"begun":                 testBegun,
	"answers":               testAnswers,
	"replay":                testReplay,
	"cancel":                testCancel,
	"purge":                 testPurge,
	"fence":                 testFence,
	"another system":        testAnotherSystem,
	"former incarnation":    testFormerIncarnation,
	"expire":                testExpire,
	"mirror":                testMirror,
	"mirror's fence":        testMirrorFence,
	"lease":                 testLease,
}

func TestMemory(t *testing.T) {
	for name, test := range conformance {
		t.Run(name, func(t *testing.T) { test(newBench(t, &memoryWorld{memorytest.NewDatabase()})) })
	}
}

// big is a key that no index entry holds, with a NUL byte.
var big = strings.Repeat("k\x00", 64<<10)

func testRoundTrip(b *bench) { b.roundTrip((*bench).deferRow) }

// roundTrip writes rows of all kinds and reads them back.
func (b *bench) roundTrip(write func(*bench, ...*store.Row)) {
	b = b.with(func(c *store.Config) { c.Columns = []string{"tenant", "", "c"} })
	first := time.Date(2025, 11, 20, 12, 0, 1, 0, time.UTC)
	rows := b.rows(10, "k", 1, 2)
	rows[8].Event.LeftOut, rows[8].Event.Payload = &event.LeftOut{Table: "public.outbox", Bytes: 1 << 20}, nil
	rows[9].Event.LeftOut, rows[9].Event.ID = &event.LeftOut{Bytes: 1 << 32}, nil
	rows[0].Event.Columns = [][]byte{nil, {}, []byte("v\x00")}
	rows[1].Event.Columns = [][]byte{[]byte(big), nil, nil}
	ev := func(i int) *event.Event { return &rows[i].Event }
	ev(0).Payload, ev(0).PayloadKind = nil, event.JSON
	ev(1).Payload, ev(1).PayloadKind = []byte{}, event.Text
	ev(2).Payload, ev(2).PayloadKind = []byte{0, 1, 255}, event.Binary
	ev(3).Key, ev(3).Aggregate, ev(3).Type = []byte(big), []byte(big), []byte(big)
	ev(3).ID, ev(3).Payload = []byte(big), bytes.Repeat([]byte("p\x00"), 1<<20)
	ev(4).Key, ev(4).Aggregate, ev(4).Type = nil, []byte{}, []byte{}
	ev(4).Route = &event.Route{Name: nil, RoutingKey: []byte{}}
	ev(5).ID, ev(5).Fault, ev(5).Raw, ev(5).Ordered = nil, errors.New("id is NULL"), []byte("{\"id\": \x00}"), false
	ev(5).Route = &event.Route{}
	ev(6).Traceparent, ev(6).Headers = []byte("00-ab"), []byte(`{"a": 1}`)
	rows[6].Class, rows[6].Reason, rows[6].Attempts, rows[6].First, rows[6].Last = sink.Transient, sink.Invalid, 3, first, first.Add(time.Second)
	rows[6].Text, rows[6].Destination = "no", `exchange "ü"`
	rows[6].NextAttempt = time.Now().Add(time.Hour)
	ev(7).Hash, rows[7].ExchangeOrTopic, rows[7].Dest = 1<<63, 1<<64-1, 1<<63+1
	ev(7).Position.Index = 1<<32 - 1
	rows[7].Group, rows[7].Ordered = b.c.Scope.Group(ev(7), rows[7].ExchangeOrTopic)
	for i, row := range rows {
		row.Group = 1<<63 + uint64(i) // each alone
		if ev(i).Columns == nil {
			ev(i).Columns = make([][]byte, 3)
		}
	}
	write(b, rows...)
	for _, want := range rows {
		runs := b.runs(all, want.Group)
		if len(runs) != 1 || len(runs[0].Rows) != 1 || runs[0].Group != want.Group {
			b.Fatalf("got %+v", runs)
		}
		got := *runs[0].Rows[0]
		if d := time.Since(got.DeferredAt).Abs(); d > time.Minute {
			b.Errorf("deferred %v ago", d)
		}
		if d := got.NextAttempt.Sub(want.NextAttempt).Abs(); d > time.Minute {
			b.Errorf("next attempt off by %v", d)
		}
		if fault := want.Event.Fault; fault != nil {
			equal(b, "fault", got.Event.Fault.Error(), fault.Error())
			got.Event.Fault = fault
		}
		got.DeferredAt, got.NextAttempt = want.DeferredAt, want.NextAttempt
		if want.Bytes = int64(want.Event.Size() + len(want.Event.Raw)); want.Event.LeftOut != nil {
			want.Bytes = want.Event.LeftOut.Bytes
		}
		equal(b, "row", got, *want)
	}
}

func testColumnsByName(b *bench) {
	b = b.with(func(c *store.Config) { c.Columns = []string{"a", "b"} })
	row := b.row("k", 1, 1)
	row.Event.Columns = [][]byte{[]byte("A"), {}}
	b.deferRow(row)
	b = b.with(func(c *store.Config) { c.Columns = []string{"b", "new", "a"} })
	equal(b, "columns", b.runs(all, row.Group)[0].Rows[0].Event.Columns, [][]byte{{}, nil, []byte("A")})
	b = b.with(func(c *store.Config) { c.Columns = nil })
	equal(b, "columns", b.runs(all, row.Group)[0].Rows[0].Event.Columns, [][]byte(nil))
}

// A row keeps its table's shape, whatever columns are configured.
func testShape(b *bench) {
	with, without := b.row("k", 1, 1), b.row("l", 1, 2)
	with.Event.Shape = &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{{Name: "id", TypeOID: 2950, Typmod: -1}}}
	b.deferRow(with, without)
	for _, columns := range [][]string{nil, {"a"}} {
		b = b.with(func(c *store.Config) { c.Columns = columns })
		equal(b, "shape", b.runs(all, with.Group)[0].Rows[0].Event.Shape, with.Event.Shape)
		equal(b, "shape", b.runs(all, without.Group)[0].Rows[0].Event.Shape, (*event.Shape)(nil))
	}
}

func testDeferredTwice(b *bench) {
	rows := b.rows(3, "k", 1, 1)
	rows[1].Dead = true
	for range 2 {
		b.deferRow(rows...)
		b.wantRows(rows[0].Group, rows[0], rows[2])
		b.wantWhere("open", rows[1])
	}
	// With other numbers, and to the other table: what is there stays.
	again := slices.Clone(rows)
	for i, row := range again {
		o := *row
		o.N, o.Dead = b.row("x", 1, 1).N, !row.Dead
		again[i] = &o
	}
	b.deferRow(again...)
	b.wantRows(rows[0].Group, rows[0], rows[2])
	b.wantWhere("open", rows[1])
	b.wantWhere("", again...)
	b.deferRow() // nothing
}

func testAnotherEvent(b *bench) {
	deferred, dead := b.row("k", 1, 1), b.deadLetter("d")
	b.deferRow(deferred)
	for _, there := range []*store.Row{deferred, dead} {
		for _, toDead := range []bool{false, true} {
			rows := b.rows(3, "k", 1, 1)
			rows[1].Event.Position, rows[1].Dead, rows[2].Dead = there.Event.Position, toDead, true
			var refused *store.Refused
			err := b.Defer(await.Context(b.T), rows)
			if !errors.As(err, &refused) || refused.Row != rows[1] {
				b.Fatalf("got %v", err)
			}
			b.wantWhere("", rows...)
		}
	}
	// No id at all, as of a row that could not be decoded, is another one than any.
	unread := b.row("u", 1, 1)
	unread.Event.ID = nil
	b.deferRow(unread)
	for _, there := range []*store.Row{deferred, dead, unread} {
		row := b.row("k", 1, 1)
		row.Event.Position = there.Event.Position
		if there != unread {
			row.Event.ID = nil
		}
		var refused *store.Refused
		if err := b.Defer(await.Context(b.T), []*store.Row{row}); !errors.As(err, &refused) || refused.Row != row {
			b.Errorf("id %q at the position of %q: got %v", row.Event.ID, there.Event.ID, err)
		}
	}
	b.deferRow(unread)
	// Twice in one call.
	rows := b.rows(2, "t", 1, 1)
	rows[1].Event.Position = rows[0].Event.Position
	if err := b.Defer(await.Context(b.T), rows); err == nil {
		b.Error("two events at one position: no error")
	}
	if err := b.Defer(await.Context(b.T), rows); err == nil {
		b.Error("two events at one position, again: no error")
	}
}

// testRegroupInPages has keys that are so long that a page has a few of them: each row is
// regrouped, wherever a page ends.
func testRegroupInPages(b *bench) {
	var rows []*store.Row
	for range 80 { // 20 MiB of keys
		row := b.row("k", 1, 1)
		row.Event.Key, row.Event.Aggregate = []byte(big), []byte(big)
		rows = append(rows, row)
	}
	b.deferRow(rows...)
	whole := b.next(event.PerExchangeOrTopic)
	equal(b, "highest", whole.regroup(), rows[len(rows)-1].Event.Position)
	group, _ := event.PerExchangeOrTopic.Group(&rows[0].Event, 1)
	whole.wantRows(group, rows...)
	whole.wantRows(rows[0].Group)
}

func testRescope(b *bench) {
	equal(b, "highest of empty tables", b.regroup(), event.Position{})
	k, l := b.rows(2, "k", 1, 1), b.rows(2, "l", 1, 1)
	u := b.row("", 1, 1)
	u.Event.Key, u.Event.Ordered = nil, false
	zero := b.row("z", 3, 1)
	zero.Event.Hash = 3 // digests that cancel out
	for _, r := range []*store.Row{u, zero} {
		r.Group, r.Ordered = b.c.Scope.Group(&r.Event, r.ExchangeOrTopic)
	}
	equal(b, "ordering_group", zero.Group, uint64(1))
	k[1].Event.LeftOut = &event.LeftOut{Table: "public.outbox", Bytes: 1 << 20} // stays in order
	rows := slices.Concat(k, l, []*store.Row{u, zero})
	b.deferRow(rows...)
	dead := b.deadLetter("k")
	for _, scope := range []event.Scope{event.PerKey, event.PerExchangeOrTopic, event.Free, event.PerKey} {
		as := b.next(scope)
		equal(b, "highest", as.regroup(), dead.Event.Position)
		groups := map[uint64][]*store.Row{}
		for _, r := range rows {
			group, _ := scope.Group(&r.Event, r.ExchangeOrTopic)
			groups[group] = append(groups[group], r)
		}
		for group, want := range groups {
			as.wantRows(group, want...)
			_, ordered := scope.Group(&want[0].Event, want[0].ExchangeOrTopic)
			equal(b, "ordered", as.runs(all, group)[0].Rows[0].Ordered, ordered)
		}
		// the dead letter blocks the ordering group that it has now
		group, ordered := scope.Group(&k[0].Event, 1)
		equal(b, "blocked", as.with(func(c *store.Config) { c.Block = true }).runs(all, group)[0].Blocked, ordered)
	}
}

// testRegroup is about whose word a new leader takes for the ordering of the rows. A leader of a
// version that keeps no record regroups rows and writes new ones; only its epoch tells of it.
func testRegroup(b *bench) {
	b.regroup()
	k, dead := b.rows(2, "k", 1, 1), b.deadLetter("k")
	b.deferRow(k...)
	perKey := k[0].Group
	again := b.next(event.PerKey)
	again.regroup()
	again.wantRows(perKey, k...)
	whole := b.next(event.PerExchangeOrTopic)
	whole.regroup()
	whole.wantRows(1, k...)
	older := b.next(event.PerKey) // does not regroup what is there
	l := older.row("l", 1, 1)
	older.deferRow(l)
	for _, s := range []event.Scope{event.PerExchangeOrTopic, event.PerKey} {
		leader := b.next(s)
		leader.regroup()
		if s == event.PerExchangeOrTopic {
			leader.wantRows(1, append(slices.Clone(k), l)...)
			continue
		}
		leader.wantRows(perKey, k...)
		leader.wantRows(l.Group, l)
		// A dead letter too, whether or not it blocks: it may under the next leader.
		hold := leader.with(func(c *store.Config) { c.Block = true })
		equal(b, "blocked", hold.runs(all, perKey), []store.RowRun{{Group: dead.Group, Blocked: true}})
	}
}

func testExchanges(b *bench) {
	hold := b.with(func(c *store.Config) { c.Block = true })
	want := func(b *bench, want ...uint64) {
		b.Helper()
		got, err := b.ExchangesWithRows(await.Context(b.T))
		b.must(err)
		slices.Sort(want)
		equal(b, "exchanges", got, want)
	}
	want(hold)
	b.deferRow(slices.Concat(b.rows(3, "k", 2, 5), b.rows(2, "l", 2, 1<<63), b.rows(2, "k", 1<<64-1, 5), b.rows(1, "m", 1<<63, 5))...)
	deferred := []uint64{2, 1<<64 - 1, 1 << 63}
	want(b, deferred...)
	want(hold, deferred...)
	dead := b.deadLetter("d")
	want(b, deferred...)
	if slices.Contains(deferred, dead.ExchangeOrTopic) {
		b.Fatal("the dead letter is of an exchange that has rows")
	}
	want(hold, append(slices.Clone(deferred), dead.ExchangeOrTopic)...)
	want(hold.with(func(c *store.Config) { c.SystemID = "another" }))
	b.answer(b.Ask(b.c, store.Discard, dead.N, event.Route{}), true, sink.Outcome{})
	want(hold, deferred...)
}

func testMissing(b *bench) {
	want := func(b *bench, want ...store.MissingExchange) {
		b.Helper()
		got, err := b.MissingExchanges(await.Context(b.T))
		b.must(err)
		equal(b, "missing", got, want)
	}
	want(b)
	rows := slices.Concat(b.rows(3, "k", 1<<64-1, 5), b.rows(3, "l", 2, 5), b.rows(2, "m", 3, 5))
	for i, r := range rows {
		if i%3 > 0 {
			r.Class, r.Reason, r.Text, r.Destination = sink.Destination, sink.NoExchange, "no exchange", fmt.Sprintf("exchange of %s", r.Event.Key)
		}
	}
	rows[7].Dead = true // the only one of its exchange
	b.deferRow(rows...)
	list := []store.MissingExchange{
		{ExchangeOrTopic: 1<<64 - 1, Destination: "exchange of k", Text: "no exchange"}, {ExchangeOrTopic: 2, Destination: "exchange of l", Text: "no exchange"},
	}
	want(b, list...)
	want(b.with(func(c *store.Config) { c.SystemID = "another" }))
	b.must(b.ApplyResults(await.Context(b.T), []store.Result{{Row: rows[1]}, {Row: rows[2]}}))
	want(b, list[1])
}

func testPositions(b *bench) {
	rows := b.rows(25, "k", 1, 1)
	for i, r := range rows {
		r.Dead = i%3 == 0
	}
	unread, purged := rows[4], rows[6]
	unread.Event.ID = nil // as of one that could not be read
	leftOut := []*store.Row{rows[7], rows[9]}
	for _, r := range leftOut {
		r.Event.ID, r.Event.LeftOut = nil, &event.LeftOut{Table: "public.outbox", Bytes: 1 << 20}
	}
	var want []store.StoredPosition
	for _, r := range rows {
		want = append(want, ownedBy(r))
	}
	slices.Reverse(rows)
	b.deferRow(rows...)
	b.answer(b.Ask(b.c, store.Purge, purged.N, event.Route{}), true, sink.Outcome{})
	want[6] = store.StoredPosition{Position: purged.Event.Position, Purged: true, Committed: purged.Event.CommitTime.UnixMicro()}
	var got []store.StoredPosition
	for from := (event.Position{}); ; {
		page, err := b.PositionsFrom(await.Context(b.T), from, 10)
		b.must(err)
		got = append(got, page...)
		if len(page) < 10 {
			break
		}
		from = page[9].Position
		from.Index++
	}
	equal(b, "positions", got, want)
	page, err := b.PositionsFrom(await.Context(b.T), want[3].Position, 2)
	b.must(err)
	equal(b, "from one that is there", page, want[3:5])
	// What is known is what Defer leaves as it is, and nothing else. Where an id is left out now,
	// or was when the row was written, the commit time tells events apart.
	try := func(r *store.Row, ev event.Event, want bool) {
		b.Helper()
		again := *r
		again.Event = ev
		at := slices.IndexFunc(got, func(o store.StoredPosition) bool { return o.Position == r.Event.Position })
		known, refused := got[at].Matches(&again.Event), b.Defer(await.Context(b.T), []*store.Row{&again})
		if known != want || (refused == nil) != want {
			b.Errorf("row %s, id %q: known %t, and Defer says %v", r.Event.Position, ev.ID, known, refused)
		}
	}
	for _, r := range []*store.Row{rows[len(rows)-2], rows[len(rows)-1], unread, purged} {
		for _, id := range [][]byte{bytes.Clone(r.Event.ID), []byte("another"), {}, nil} {
			ev := r.Event
			ev.ID = id
			try(r, ev, r == purged || (id == nil) == (r.Event.ID == nil) && bytes.Equal(id, r.Event.ID))
			if id == nil && r.Event.ID != nil && r != purged {
				ev.LeftOut = &event.LeftOut{Table: "public.outbox"}
				try(r, ev, true)
				ev.CommitTime = ev.CommitTime.Add(time.Microsecond)
				try(r, ev, false)
			}
		}
	}
	for _, r := range leftOut {
		ev := r.Event
		try(r, ev, true)
		ev.ID, ev.LeftOut = []byte("the limit is lifted"), nil
		try(r, ev, true)
		ev.CommitTime = ev.CommitTime.Add(time.Microsecond)
		try(r, ev, false)
	}
}

func ownedBy(r *store.Row) store.StoredPosition {
	o := store.StoredPosition{Position: r.Event.Position, LeftOut: r.Event.LeftOut != nil && r.Event.ID == nil, Committed: r.Event.CommitTime.UnixMicro()}
	if r.Event.ID != nil {
		id := sha256.Sum256(r.Event.ID)
		o.ID = id[:]
	}
	return o
}

func testRead(b *bench) {
	k, l := b.rows(5, "k", 1, 1), b.rows(2, "l", 1, 1)
	// Of an earlier position and a later number, and not acked: nothing behind it may go.
	early := b.rows(2, "early", 1, 1)
	late := b.row("late", 1, 1)
	early[0].N, early[1].N = early[1].N, early[0].N
	b.deferRow(slices.Concat(k, l, early, []*store.Row{late})...)
	b.wantRows(k[0].Group, k...)
	size := int64(k[0].Event.Size())
	const none = 99
	groups := []uint64{l[0].Group, none, k[0].Group, early[0].Group, late.Group}
	for _, c := range []struct {
		name        string
		run         int
		size, acked int64
		rows        [][]*store.Row
		more        []bool
	}{
		{"run of 3, acked", 3, all, early[1].N, [][]*store.Row{l, nil, k[:3], nil, nil}, []bool{false, false, true, true, true}},
		{"size", 100, 4 * size, all, [][]*store.Row{l[:1], nil, k[:1], early[:1], {late}}, []bool{true, false, true, true, false}},
		{"no size", 100, 0, all, [][]*store.Row{l[:1], nil, nil, nil, nil}, []bool{true, false, true, true, true}},
		{"size for more", 100, 6 * size, all, [][]*store.Row{l, nil, k[:2], early[:1], {late}}, []bool{false, false, true, true, false}},
	} {
		runs, err := b.ReadRows(await.Context(b.T), wants(groups...), c.run, c.size, c.acked)
		b.must(err)
		equal(b, c.name+": answers", len(runs), len(groups))
		for i, r := range runs {
			equal(b, fmt.Sprint(c.name, " ", i), fmt.Sprint(r.Group, numbers(r.Rows), r.More, r.Blocked), fmt.Sprint(groups[i], numbers(c.rows[i]), c.more[i], false))
		}
	}
	equal(b, "no wants", len(b.runs(all)), 0)
}

// testReadBehind reads from a position on, as the feeder does while rows that it has delivered may
// still be in the table.
func testReadBehind(b *bench) {
	hold := b.with(func(c *store.Config) { c.Block = true })
	after := func(r *store.Row) store.RowPosition {
		return store.RowPosition{Incarnation: r.Incarnation, Position: r.Event.Position}
	}
	want := func(group uint64, after store.RowPosition) store.Want { return store.Want{Group: group, After: after} }
	k, l, held := b.rows(5, "k", 1, 1), b.rows(2, "l", 1, 1), b.row("held", 1, 1)
	k[0].Incarnation-- // its position is behind those of the newer incarnation, and it comes first
	k[0].Event.Position.Commit += 1 << 32
	b.deferRow(slices.Concat(k, l, []*store.Row{held})...)
	b.deadLetter("held")
	group, none := k[0].Group, uint64(99)
	type answer struct {
		rows          []*store.Row
		blocked, more bool
	}
	for _, c := range []struct {
		name  string
		of    *bench
		run   int
		size  int64
		acked int64
		wants []store.Want
		want  []answer
	}{
		{"of the start", b, 5, all, all, []store.Want{want(group, store.RowPosition{})}, []answer{{rows: k}}},
		{"the limit", b, 4, all, all, []store.Want{want(group, store.RowPosition{})}, []answer{{rows: k[:4], more: true}}},
		{"behind a row", b, 3, all, all, []store.Want{want(group, after(k[0]))}, []answer{{rows: k[1:4], more: true}}},
		{"behind a row inside a transaction", b, 9, all, all, []store.Want{want(group, after(k[2]))}, []answer{{rows: k[3:]}}},
		{"behind the last", b, 9, all, all, []store.Want{want(group, after(k[4]))}, []answer{{}}},
		{"each want", b, 9, all, all, []store.Want{want(none, store.RowPosition{}), want(l[0].Group, after(l[0])), want(group, after(k[3]))}, []answer{{}, {rows: l[1:]}, {rows: k[4:]}}},
		{"acked", b, 9, all, k[2].N, []store.Want{want(group, after(k[0])), want(group, after(k[2]))}, []answer{{rows: k[1:3], more: true}, {more: true}}},
		{"no room", b, 9, 0, all, []store.Want{want(group, after(k[0])), want(l[0].Group, after(l[0]))}, []answer{{rows: k[1:2], more: true}, {more: true}}},
		{"blocked", hold, 9, all, all, []store.Want{want(held.Group, store.RowPosition{}), want(l[0].Group, store.RowPosition{})}, []answer{{blocked: true}, {rows: l}}},
	} {
		runs, err := c.of.ReadRows(await.Context(b.T), c.wants, c.run, c.size, c.acked)
		b.must(err)
		equal(b, c.name+": answers", len(runs), len(c.want))
		for i, w := range c.want {
			r := runs[i]
			equal(b, fmt.Sprint(c.name, " ", i), fmt.Sprint(r.Group == c.wants[i].Group, numbers(r.Rows), r.Blocked, r.More), fmt.Sprint(true, numbers(w.rows), w.blocked, w.more))
		}
	}
}

func testHold(b *bench) {
	hold := b.with(func(c *store.Config) { c.Block = true })
	k := b.rows(2, "k", 1, 1)
	b.deferRow(k...)
	dead, alone := b.deadLetter("k"), b.deadLetter("alone")
	b.wantRows(k[0].Group, k...)
	for i, r := range hold.runs(all, k[0].Group, alone.Group, 99) {
		equal(b, "blocked, with rows", [2]bool{r.Blocked, len(r.Rows) > 0}, [2]bool{i < 2, false})
	}
	b.answer(b.Ask(b.c, store.Discard, dead.N, event.Route{}), true, sink.Outcome{})
	hold.wantRows(k[0].Group, k...)
	// What is not counted holds nothing: a row that could not be decoded, although all events of
	// its exchange or topic are one ordering group.
	exchangeOrTopic := b.with(func(c *store.Config) { c.Block, c.Scope = true, event.PerExchangeOrTopic })
	unread, next := exchangeOrTopic.row("", 9, 1), exchangeOrTopic.row("n", 9, 1)
	unread.Event.Fault, unread.Event.Raw, unread.Dead = errors.New("id is NULL"), []byte("{}"), true
	unread.Group, unread.Ordered = exchangeOrTopic.c.Scope.Group(&unread.Event, 9)
	exchangeOrTopic.deferRow(unread, next)
	equal(b, "ordering_group", unread.Group, next.Group)
	exchangeOrTopic.wantRows(next.Group, next)
}

func testSweep(b *bench) {
	// Digests are ordered as signed numbers: the lowest is 1<<63.
	start, first := store.Cursor{ExchangeOrTopic: 1 << 63, Dest: 1 << 63}, store.Cursor{ExchangeOrTopic: 1 << 63, Dest: 5}
	_, ok, err := b.NextDestination(await.Context(b.T), start)
	b.must(err)
	groups, next, err := b.GroupsOfDestination(await.Context(b.T), first, 10)
	b.must(err)
	if ok || len(groups) > 0 || next != first {
		b.Fatalf("of an empty table: %v %v %v", ok, groups, next)
	}
	x, y, z := b.rows(3, "x", 1<<63, 5), b.rows(2, "y", 1<<63, 5), b.rows(2, "z", 1<<63, 6)
	last, end := b.row("k", 7, 1<<64-1), b.row("k", 7, 2)
	mixed := []*store.Row{x[0], y[0], x[1], z[0], x[2], y[1], z[1], end, last}
	for i, at := range func() (list []event.Position) {
		for _, r := range slices.Concat(x, y, z, []*store.Row{last, end}) {
			list = append(list, r.Event.Position)
		}
		return list
	}() {
		mixed[i].Event.Position = at
	}
	b.deferRow(mixed...)
	sweep := func(at store.Cursor, limit int, want ...uint64) store.Cursor {
		b.Helper()
		groups, next, err := b.GroupsOfDestination(await.Context(b.T), at, limit)
		b.must(err)
		equal(b, "ordering_groups", groups, want)
		return next
	}
	skip := func(at store.Cursor, exchangeOrTopic, dest uint64) store.Cursor {
		b.Helper()
		next, ok, err := b.NextDestination(await.Context(b.T), at)
		b.must(err)
		equal(b, "skip", next, store.Cursor{ExchangeOrTopic: exchangeOrTopic, Dest: dest})
		equal(b, "more", ok, true)
		return next
	}
	at := sweep(first, 100, x[0].Group, y[0].Group)
	at = sweep(at, 100)
	equal(b, "exchange or topic and destination", [2]uint64{at.ExchangeOrTopic, at.Dest}, [2]uint64{1 << 63, 5})
	at = sweep(first, 2, x[0].Group, y[0].Group)
	at = sweep(at, 2, x[0].Group)
	at = sweep(at, 2, y[0].Group)
	sweep(at, 2)
	skip(start, 1<<63, 5)
	at = skip(at, 1<<63, 6)
	sweep(at, 10, z[0].Group)
	at = skip(at, 7, 1<<64-1)
	sweep(at, 10, last.Group)
	at = skip(at, 7, 2)
	sweep(at, 10, end.Group)
	if _, ok, err := b.NextDestination(await.Context(b.T), at); ok || err != nil {
		b.Errorf("after the last: %v %v", ok, err)
	}
}

func testApply(b *bench) {
	k := b.rows(5, "k", 1, 1)
	k[3].Event.Payload = bytes.Repeat([]byte("x"), 100_000)
	b.deferRow(k...)
	stale := *k[2]
	stale.N = 1 << 50
	refused := store.Result{Class: sink.Permanent, Reason: sink.Invalid, Text: "bad", Destination: "d", Attempts: 4}
	dead, kept := refused, refused
	dead.Row, dead.Kind = k[3], store.Dead
	kept.Row, kept.Kind, kept.After = k[1], store.Backoff, time.Hour
	results := []store.Result{{Row: k[0], Kind: store.Delivered}, kept, dead, {Row: &stale, Kind: store.Delivered}, {Row: &stale, Kind: store.Dead}}
	for range 2 {
		b.must(b.ApplyResults(await.Context(b.T), results))
		b.wantWhere("", k[0])
		b.wantWhere("deferred", k[1], k[2], k[4])
		b.wantWhere("open", k[3])
		b.wantRows(k[1].Group, k[1], k[2], k[4])
	}
	b.must(b.ApplyResults(await.Context(b.T), nil))
	if page, err := b.PositionsFrom(await.Context(b.T), event.Position{}, 100); err != nil || len(page) != 4 {
		b.Errorf("positions %v, %v", page, err)
	}
	// The dead letter is whole.
	id := b.Ask(b.c, store.Replay, k[3].N, event.Route{})
	got := b.request(id).Row
	if got == nil || !bytes.Equal(got.Event.Payload, k[3].Event.Payload) || got.Attempts != 4 || got.Class != sink.Permanent || got.Text != "bad" || !got.Dead {
		b.Errorf("dead letter %+v", got)
	}
}

func testRefusals(b *bench) {
	rows := b.rows(2, "k", 1, 1)
	rows[0].Class, rows[0].Reason, rows[0].Text = sink.Transient, sink.Invalid, "at 7 of 0a1b2c3d-0000-4000-8000-0123456789ab, 12345\x00\xff"
	rows[0].First = time.Now().Add(-time.Hour)
	rows[0].Destination = strings.Repeat("d", 2*store.TextSize)
	b.deferRow(rows...)
	read := func() (*store.Row, *store.Row) { r := b.runs(all, rows[0].Group)[0].Rows; return r[0], r[1] }
	one, two := read()
	equal(b, "words", one.Text, "at # of #, #??")
	equal(b, "destination", one.Destination, strings.Repeat("d", store.TextSize))
	equal(b, "never refused", [2]string{two.Class.String(), string(two.Reason)}, [2]string{"destination", ""})
	b.must(b.ApplyResults(await.Context(b.T), []store.Result{
		{Row: one, Kind: store.Backoff, After: time.Second},
		{Row: two, Kind: store.Backoff, Class: sink.Destination, Reason: sink.Nacked, Text: "full", Destination: "q", Attempts: 1},
	}))
	before := one
	one, two = read()
	equal(b, "words", one.Text, before.Text)
	equal(b, "first", one.First.Round(time.Millisecond), rows[0].First.UTC().Round(time.Millisecond))
	if one.NextAttempt.IsZero() || one.Attempts != 0 || one.Reason != sink.Invalid || one.Class != sink.Transient {
		b.Errorf("not refused again: %+v", one)
	}
	if two.Text != "full" || two.Destination != "q" || two.Attempts != 1 || two.Reason != sink.Nacked || time.Since(two.First) > time.Minute || !two.First.Equal(two.Last) {
		b.Errorf("refused: %+v", two)
	}
	// Until an attempt is spent First is of a destination that refuses, then of the first that
	// spent one.
	waits := b.row("w", 1, 1)
	waits.Reason, waits.First = sink.Nacked, time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	b.deferRow(waits)
	first := waits.First
	for attempts, class := range []sink.Class{sink.Destination, sink.Transient, sink.Transient} {
		row := b.runs(all, waits.Group)[0].Rows[0]
		b.must(b.ApplyResults(await.Context(b.T), []store.Result{{Row: row, Kind: store.Backoff, Class: class, Reason: sink.Nacked, Attempts: attempts}}))
		row = b.runs(all, waits.Group)[0].Rows[0]
		if attempts == 1 {
			first = row.Last
		}
		equal(b, "first", row.First.UTC(), first.UTC())
		equal(b, "first and last", row.First.Equal(row.Last), attempts == 1)
	}
}

// request is the one of that number.
func (b *bench) request(id int64) store.Request {
	b.Helper()
	list, err := b.WaitingRequests(await.Context(b.T), 100, all)
	b.must(err)
	for _, q := range list {
		if q.ID == id {
			return q
		}
	}
	b.Fatalf("no request %d in %+v", id, list)
	return store.Request{}
}

// answer answers a request, twice, and wants it to have taken place or not.
func (b *bench) answer(id int64, want bool, outcome sink.Outcome) {
	b.Helper()
	a := []store.Answer{{Request: b.request(id), Outcome: outcome}}
	for range 2 {
		done, err := b.AnswerRequests(await.Context(b.T), a)
		b.must(err)
		equal(b, "done", done, []bool{want})
	}
}

func (b *bench) wantAsked(id int64, state, result string) {
	b.Helper()
	s, r := b.Asked(id)
	equal(b, "request", [2]string{s, r}, [2]string{state, result})
}

func testRequests(b *bench) {
	deadLetters, deferred := []*store.Row{b.deadLetter("a"), b.deadLetter("b"), b.deadLetter("c")}, b.row("p", 1, 1)
	b.deferRow(deferred)
	route := event.Route{Name: []byte("else"), RoutingKey: []byte{}}
	first := b.Ask(b.c, store.Replay, deadLetters[0].N, route)
	if again := b.Ask(b.c, store.Discard, deadLetters[0].N, event.Route{}); again != 0 {
		b.Fatal("two requests about one dead letter")
	}
	discard, second := b.Ask(b.c, store.Discard, deadLetters[1].N, event.Route{}), b.Ask(b.c, store.Replay, deadLetters[2].N, event.Route{})
	ids := []int64{discard, b.Ask(b.c, store.Retry, deferred.N, event.Route{}), first, second, b.Ask(b.c, store.Replay, 1<<50, event.Route{})}
	list, err := b.WaitingRequests(await.Context(b.T), 100, all)
	b.must(err)
	var got []int64
	for _, q := range list {
		got = append(got, q.ID)
	}
	equal(b, "requests", got, ids)
	equal(b, "route", list[2].Route, route)
	equal(b, "no route", list[3].Route, event.Route{})
	if r := list[2].Row; r == nil || r.N != deadLetters[0].N || r.Event.Payload == nil || !r.Dead {
		b.Errorf("replay: %+v", list[2])
	}
	if r := list[0].Row; r == nil || r.Event.Payload != nil || !r.Dead || string(r.Event.ID) != string(deadLetters[1].Event.ID) {
		b.Errorf("discard: %+v", list[0])
	}
	if r := list[1].Row; r == nil || r.N != deferred.N || r.Dead {
		b.Errorf("retry: %+v", list[1])
	}
	if list[4].Row != nil {
		b.Errorf("of nothing: %+v", list[4])
	}
	for limit, n := range map[[2]int64]int{{2, all}: 2, {100, 1}: 3, {100, int64(deadLetters[0].Event.Size() + 1)}: 4} {
		if list, err := b.WaitingRequests(await.Context(b.T), int(limit[0]), limit[1]); err != nil || len(list) != n {
			b.Errorf("%v: %d requests, %v", limit, len(list), err)
		}
	}
	light, err := b.WaitingRequests(await.Context(b.T), 100, 0)
	if err != nil || len(light) != len(ids) || light[2].Row.N != deadLetters[0].N || light[2].Row.Event.Payload != nil {
		b.Errorf("without what is sent: %+v, %v", light, err)
	}
	b.answer(ids[4], false, sink.Outcome{})
	b.wantAsked(ids[4], "failed", store.NotAllowed)
}

// The next leader sees what a former one has begun. That changes nothing else of a request, and
// nothing of one of another slot, or of one that has been cancelled.
func testBegun(b *bench) {
	ids := []int64{}
	for _, key := range []string{"a", "b", "c", "d"} {
		ids = append(ids, b.Ask(b.c, store.Replay, b.deadLetter(key).N, event.Route{}))
	}
	other := newBench(b.T, b.world)
	b.must(other.BeginReplay(await.Context(b.T), ids[1]))
	b.cancel(ids[2])
	for _, i := range []int{0, 0, 2} {
		b.must(b.BeginReplay(await.Context(b.T), ids[i]))
	}
	former := b.c.Epoch
	next := b.with(func(c *store.Config) { c.Epoch = b.raise(b.c.Slot) })
	b.must(next.BeginReplay(await.Context(b.T), ids[3]))
	list, err := next.WaitingRequests(await.Context(b.T), 100, all)
	b.must(err)
	got := map[int64]int64{}
	for _, q := range list {
		got[q.ID] = q.Begun
	}
	equal(b, "begun", got, map[int64]int64{ids[0]: former, ids[1]: 0, ids[3]: next.c.Epoch})
	b.wantAsked(ids[0], "waiting", "")
	b.wantAsked(ids[2], "cancelled", "")
	next.answer(ids[0], true, sink.Outcome{State: sink.Confirmed})
}

func testAnswers(b *bench) {
	none := event.Route{}
	k := b.rows(3, "k", 1, 1)
	b.deferRow(k...)
	deadLetter := b.deadLetter("l")

	redact := b.Ask(b.c, store.Redact, deadLetter.N, none)
	b.answer(redact, true, sink.Outcome{})
	b.wantAsked(redact, "done", "redacted")
	b.wantWhere("open", deadLetter)
	replay := b.Ask(b.c, store.Replay, deadLetter.N, none) // there is nothing to send any more
	b.answer(replay, false, sink.Outcome{State: sink.Confirmed})
	b.wantAsked(replay, "failed", store.NotAllowed)
	b.wantWhere("open", deadLetter)

	discard := b.Ask(b.c, store.Discard, deadLetter.N, none)
	if r := b.request(discard).Row; r == nil || r.Event.Key == nil || r.Event.Traceparent != nil {
		b.Errorf("redacted: %+v", r)
	}
	b.answer(discard, true, sink.Outcome{})
	b.wantAsked(discard, "done", "discarded")
	b.wantWhere("discarded", deadLetter)
	again := b.Ask(b.c, store.Discard, deadLetter.N, none)
	b.answer(again, false, sink.Outcome{})

	retry := b.Ask(b.c, store.Retry, k[1].N, none) // its head is tried
	b.answer(retry, true, sink.Outcome{})
	if rows := b.runs(all, k[0].Group)[0].Rows; rows[0].NextAttempt.IsZero() || !rows[1].NextAttempt.IsZero() {
		b.Errorf("next attempts: %v, %v", rows[0].NextAttempt, rows[1].NextAttempt)
	}

	die := b.Ask(b.c, store.DeadLetter, k[1].N, none)
	b.answer(die, true, sink.Outcome{})
	b.wantAsked(die, "done", "dead letter")
	b.wantWhere("open", k[1])
	b.wantRows(k[0].Group, k[0], k[2])

	// All kinds at once, each about its own row.
	l2 := b.deadLetter("l2")
	ids := []int64{b.Ask(b.c, store.Discard, k[1].N, none), b.Ask(b.c, store.DeadLetter, k[0].N, none), b.Ask(b.c, store.Purge, k[2].N, none), b.Ask(b.c, store.Replay, l2.N, none)}
	var list []store.Answer
	for _, id := range ids {
		list = append(list, store.Answer{Request: b.request(id), Outcome: sink.Outcome{State: sink.Confirmed}})
	}
	done, err := b.AnswerRequests(await.Context(b.T), list)
	b.must(err)
	equal(b, "done", done, []bool{true, true, true, true})
	b.wantWhere("discarded", k[1])
	b.wantWhere("open", k[0])
	b.wantWhere("purged", k[2])
	b.wantWhere("replayed", l2)

	equal(b, "audit", b.audit(deadLetter.N), []string{
		"ann, redact, " + deadLetter.Event.Position.String() + ", why, redacted", "ann, replay, " + event.Position{}.String() + ", why, " + store.NotAllowed,
		"ann, discard, " + deadLetter.Event.Position.String() + ", why, discarded", "ann, discard, " + event.Position{}.String() + ", why, " + store.NotAllowed,
	})
	equal(b, "audit", len(b.audit(k[1].N)), 3)
	if done, err := b.AnswerRequests(await.Context(b.T), nil); err != nil || len(done) > 0 {
		b.Errorf("no answers: %v %v", done, err)
	}
}

func testReplay(b *bench) {
	deadLetter := b.deadLetter("k")
	id := b.Ask(b.c, store.Replay, deadLetter.N, event.Route{})
	b.answer(id, false, sink.Outcome{State: sink.Unsent})
	b.wantAsked(id, "waiting", "")
	fault := &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Destination: `exchange "gone"`, Text: "no exchange 7"}
	b.answer(id, false, sink.Outcome{State: sink.Rejected, Fault: fault})
	b.wantAsked(id, "failed", "no_exchange: no exchange 7")
	b.wantWhere("open", deadLetter)
	id = b.Ask(b.c, store.Replay, deadLetter.N, event.Route{})
	if r := b.request(id).Row; r.Class != sink.Destination || r.Reason != sink.NoExchange || r.Text != "no exchange #" || r.Destination != fault.Destination {
		b.Errorf("refused: %+v", r)
	}
	b.answer(id, true, sink.Outcome{State: sink.Confirmed})
	b.wantAsked(id, "done", "replayed")
	b.wantWhere("replayed", deadLetter)
}

func testCancel(b *bench) {
	deadLetter, other := b.deadLetter("k"), b.deadLetter("l")
	discard, replay := b.Ask(b.c, store.Discard, deadLetter.N, event.Route{}), b.Ask(b.c, store.Replay, other.N, event.Route{})
	answers := []store.Answer{{Request: b.request(discard)}, {Request: b.request(replay), Outcome: sink.Outcome{State: sink.Confirmed}}}
	b.cancel(discard)
	b.cancel(replay)
	for range 2 {
		done, err := b.AnswerRequests(await.Context(b.T), answers)
		b.must(err)
		equal(b, "done", done, []bool{false, true})
	}
	b.wantAsked(discard, "cancelled", "")
	b.wantAsked(replay, "done", "replayed") // it was on its way
	b.wantWhere("open", deadLetter)
	b.wantWhere("replayed", other)
}

func testPurge(b *bench) {
	hold := b.with(func(c *store.Config) { c.Block = true })
	deferred, deadLetter := b.row("k", 1, 1), b.deadLetter("l")
	b.deferRow(deferred)
	failed := b.Ask(b.c, store.Replay, deadLetter.N, event.Route{Name: []byte("person")})
	b.answer(failed, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Text: "no exchange person"}})
	b.wantAsked(failed, "failed", "no_exchange: no exchange person")
	// it is kept
	equal(b, "audit", b.audit(deadLetter.N), []string{"ann, replay, " + deadLetter.Event.Position.String() + ", why, no_exchange"})
	for _, row := range []*store.Row{deferred, deadLetter} {
		id := b.Ask(b.c, store.Purge, row.N, event.Route{})
		b.answer(id, true, sink.Outcome{})
		b.wantAsked(id, "done", "purged")
		b.wantWhere("purged", row)
		again := b.Ask(b.c, store.Purge, row.N, event.Route{})
		b.answer(again, false, sink.Outcome{})
	}
	b.wantAsked(failed, "failed", store.TextPurged)
	hold.wantRows(deferred.Group)
	hold.wantRows(deadLetter.Group)
	// The positions are still known, and the events are not deferred again.
	page, err := b.PositionsFrom(await.Context(b.T), event.Position{}, 10)
	b.must(err)
	equal(b, "positions", len(page), 2)
	b.deferRow(deferred, deadLetter)
	b.wantWhere("purged", deferred, deadLetter)
}

// reads are the methods that only read, each on rows that are there.
func reads(b *bench, deferred *store.Row) map[string]func() error {
	at := store.Cursor{}
	c := await.Context(b.T)
	return map[string]func() error{
		"Positions": func() error { _, err := b.PositionsFrom(c, event.Position{}, 10); return err },
		"Exchanges": func() error { _, err := b.ExchangesWithRows(c); return err },
		"Missing":   func() error { _, err := b.MissingExchanges(c); return err },
		"Read":      func() error { _, err := b.ReadRows(c, wants(deferred.Group, 9), 1, 1, all); return err },
		"Sweep":     func() error { _, _, err := b.GroupsOfDestination(c, at, 1); return err },
		"Skip":      func() error { _, _, err := b.NextDestination(c, at); return err },
		"Reclaim":   func() error { _, err := b.ReclaimSpace(c); return err },
		"Requests":  func() error { _, err := b.WaitingRequests(c, 1, 1); return err },
	}
}

// writes are the other methods.
func writes(b *bench, deferred, deadLetter, fresh *store.Row, request store.Request) map[string]func() error {
	c := await.Context(b.T)
	return map[string]func() error{
		"Lease": func() error { _, err := b.LeaseNumbers(c); return err },
		"Regroup": func() error {
			_, err := b.with(func(c *store.Config) { c.Scope = event.PerExchangeOrTopic }).RegroupRows(c)
			return err
		},
		"Defer":     func() error { return b.Defer(c, []*store.Row{fresh, deferred, deadLetter}) },
		"Delivered": func() error { return b.ApplyResults(c, []store.Result{{Row: deferred, Kind: store.Delivered}}) },
		"Backoff": func() error {
			return b.ApplyResults(c, []store.Result{{Row: deferred, Kind: store.Backoff, After: time.Hour}})
		},
		"Dead":        func() error { return b.ApplyResults(c, []store.Result{{Row: deferred, Kind: store.Dead}}) },
		"Answer":      func() error { _, err := b.AnswerRequests(c, []store.Answer{{Request: request}}); return err },
		"BeginReplay": func() error { return b.BeginReplay(c, request.ID) },
		"Expire":      func() error { _, err := b.ExpireDeadLetters(c, time.Nanosecond, 10); return err },
	}
}

// methods are all of the Store.
func methods(b *bench, deferred, deadLetter, fresh *store.Row, request store.Request) map[string]func() error {
	m := reads(b, deferred)
	maps.Copy(m, writes(b, deferred, deadLetter, fresh, request))
	return m
}

// unchanged wants the rows to be where they were before a former leader tried each of the methods.
func (b *bench) unchanged(deferred, deadLetter, fresh *store.Row, request store.Request) {
	b.Helper()
	b.wantWhere("deferred", deferred)
	b.wantWhere("discarded", deadLetter)
	b.wantWhere("", fresh)
	b.wantAsked(request.ID, "waiting", "")
	if q := b.request(request.ID); q.Begun != 0 {
		b.Errorf("request %+v", q)
	}
	rows := b.runs(all, deferred.Group)[0].Rows
	if len(rows) != 1 || !rows[0].NextAttempt.IsZero() {
		b.Errorf("rows %+v", rows)
	}
}

// fenced is a former leader with something to do.
func (b *bench) fenced() (deferred, deadLetter, fresh *store.Row, request store.Request) {
	b.Helper()
	deferred, deadLetter, fresh = b.row("k", 1, 1), b.deadLetter("l"), b.row("k", 1, 1)
	b.deferRow(deferred)
	b.answer(b.Ask(b.c, store.Discard, deadLetter.N, event.Route{}), true, sink.Outcome{})
	request = b.request(b.Ask(b.c, store.Purge, deferred.N, event.Route{}))
	return deferred, deadLetter, fresh, request
}

func testFence(b *bench) {
	deferred, deadLetter, fresh, request := b.fenced()
	next := b.with(func(c *store.Config) { c.Epoch = b.raise(b.c.Slot) })
	for name, call := range methods(b, deferred, deadLetter, fresh, request) {
		if err := call(); !errors.Is(err, store.ErrFenced) {
			b.Errorf("%s: got %v", name, err)
		}
		next.unchanged(deferred, deadLetter, fresh, request)
	}
	// Of empty tables too.
	empty := newBench(b.T, b.world)
	row := empty.row("k", 1, 1)
	empty.raise(empty.c.Slot)
	for name, call := range methods(empty, row, row, row, store.Request{Kind: store.Discard, ID: 1 << 50}) {
		if err := call(); !errors.Is(err, store.ErrFenced) {
			b.Errorf("%s of empty tables: got %v", name, err)
		}
	}
}

func testAnotherSystem(b *bench) {
	here := b.with(func(c *store.Config) { c.SystemID = "another"; c.Block = true })
	row, deadLetter := b.row("k", 1, 1), b.deadLetter("k")
	row.NextAttempt = time.Now().Add(-time.Second)
	b.deferRow(row)
	id := b.Ask(b.c, store.Replay, deadLetter.N, event.Route{})
	q := b.request(id)
	if page, err := here.PositionsFrom(await.Context(b.T), event.Position{}, 10); err != nil || len(page) > 0 {
		b.Errorf("positions %v, %v", page, err)
	}
	here.wantRows(row.Group)
	if groups, _, err := here.GroupsOfDestination(await.Context(b.T), store.Cursor{ExchangeOrTopic: row.ExchangeOrTopic, Dest: row.Dest}, 10); err != nil || len(groups) > 0 {
		b.Errorf("sweep %v, %v", groups, err)
	}
	if _, ok, err := here.NextDestination(await.Context(b.T), store.Cursor{ExchangeOrTopic: 1 << 63, Dest: 1 << 63}); err != nil || ok {
		b.Errorf("skip %v, %v", ok, err)
	}
	if list, err := here.WaitingRequests(await.Context(b.T), 10, all); err != nil || len(list) > 0 {
		b.Errorf("requests %v, %v", list, err)
	}
	b.must(here.ApplyResults(await.Context(b.T), []store.Result{{Row: row, Kind: store.Delivered}, {Row: row, Kind: store.Dead}}))
	if done, err := here.AnswerRequests(await.Context(b.T), []store.Answer{{Request: q, Outcome: sink.Outcome{State: sink.Confirmed}}}); err != nil || done[0] {
		b.Errorf("answer %v, %v", done, err)
	}
	if _, err := here.ExpireDeadLetters(await.Context(b.T), time.Nanosecond, 10); err != nil {
		b.Error(err)
	}
	b.wantWhere("deferred", row)
	b.wantWhere("open", deadLetter)
	// The same position of our own is another row.
	own := *row
	own.N = b.row("k", 1, 1).N
	own.Event.ID = []byte("own")
	here.deferRow(&own)
	here.with(func(c *store.Config) { c.Block = false }).wantRows(row.Group, &own)
	b.wantRows(row.Group, row)
}

func testFormerIncarnation(b *bench) {
	newer := b.row("k", 1, 1)
	newer.Event.Position = event.Position{Commit: 1, Index: 1}
	older := b.row("k", 1, 1)
	older.Incarnation--
	deadLetter := b.row("l", 1, 1)
	deadLetter.Incarnation, deadLetter.Dead = 1, true
	b.deferRow(newer, older, deadLetter)
	b.wantRows(newer.Group, older, newer)
	page, err := b.PositionsFrom(await.Context(b.T), event.Position{}, 10)
	b.must(err)
	equal(b, "positions", page, []store.StoredPosition{ownedBy(newer)})
	equal(b, "highest", b.regroup(), newer.Event.Position)
	b.must(b.ApplyResults(await.Context(b.T), []store.Result{{Row: older, Kind: store.Delivered}}))
	b.wantRows(newer.Group, newer)
	// What is purged of a former incarnation need not be remembered.
	b.answer(b.Ask(b.c, store.Purge, deadLetter.N, event.Route{}), true, sink.Outcome{})
	for _, want := range []int{1, 0} {
		changed, err := b.ExpireDeadLetters(await.Context(b.T), 0, 10)
		b.must(err)
		equal(b, "changed", changed, want)
	}
	b.wantWhere("", deadLetter)
}

func testExpire(b *bench) {
	discarded, open := b.deadLetter("k"), b.deadLetter("o")
	id := b.Ask(b.c, store.Discard, discarded.N, event.Route{})
	b.answer(id, true, sink.Outcome{})
	expire := func(keep time.Duration, want int) {
		b.Helper()
		changed, err := b.ExpireDeadLetters(await.Context(b.T), keep, 10)
		b.must(err)
		equal(b, "changed", changed, want)
	}
	expire(0, 0)
	expire(time.Hour, 0)
	b.wantWhere("discarded", discarded)
	expire(time.Nanosecond, 2) // the dead letter and its request
	expire(time.Nanosecond, 0) // the slot has saved nothing
	b.wantWhere("purged", discarded)
	b.wantWhere("open", open)
	equal(b, "audit", len(b.audit(discarded.N)), 1)
	notes := b.audit(0)
	equal(b, "audit of the age", notes[len(notes)-1], "(the relay), purge, "+event.Position{}.String()+", dead_letters.keep: 1ns, 1 dead letters")
	was := len(notes)
	expire(time.Nanosecond, 0)
	equal(b, "audit", len(b.audit(0)), was)
}

func testLease(b *bench) {
	was, err := b.LeaseNumbers(await.Context(b.T))
	b.must(err)
	for range 3 {
		first, err := b.LeaseNumbers(await.Context(b.T))
		b.must(err)
		if first < was+store.LeaseSize {
			b.Fatalf("block %d after %d", first, was)
		}
		was = first
	}
}
