// A retry table between a fake line and tables in memory.

package retry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// fixture is a retry table between a fake line and tables in memory.
type fixture struct {
	t     *testing.T
	db    *memorytest.Database
	store *faultyStore
	sink  *fakeSink
	line  *fakeLine
	table *Table
	next  pglogrepl.LSN
	sizes map[string]int

	deferred, dead atomic.Int64
	cancel         context.CancelFunc
	ended          chan error
}

const slot = "relay"

// inBubble runs a test with a fixture that is not started.
func inBubble(t *testing.T, cfg Config, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, db: memorytest.NewDatabase(), next: 100}
		f.succeed(cfg)
		defer func() { f.stop() }()
		test(f)
	})
}

// succeed makes a new leader on the same tables; its predecessor is fenced.
func (f *fixture) succeed(cfg Config) {
	f.line, f.sink = newFakeLine(order.PausesConfig{MaxAge: cfg.DestinationMaxAge}), &fakeSink{}
	epoch := f.db.Lead(slot)
	f.store = &faultyStore{bad: map[string]bool{}, Store: f.db.Store(store.Config{Slot: slot, SystemID: "1", Incarnation: 1, Epoch: epoch, Block: cfg.Block})}
	cfg.Slot, cfg.Epoch, cfg.Incarnation, cfg.Store, cfg.Sink = slot, epoch, 1, f.store, f.sink
	cfg.Hooks = Hooks{Deferred: func(n int) { f.deferred.Add(int64(n)) }, Dead: func(n int) { f.dead.Add(int64(n)) }}
	f.table = New(cfg)
	f.line.table, f.line.t = f.table, f.t
}

// start loads and runs.
func (f *fixture) start() {
	f.t.Helper()
	if err := f.table.Load(f.t.Context(), f.line); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.ended = cancel, make(chan error, 1)
	go func() { f.ended <- f.table.Run(ctx) }()
	f.settle()
}

func (f *fixture) stop() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	f.cancel = nil
	f.pass(10 * time.Millisecond) // a statement that is under way
	select {
	case err := <-f.ended:
		if err != nil {
			f.t.Errorf("Run returned %v", err)
		}
	default:
		f.t.Error("Run has not returned")
	}
}

// restart has another leader follow.
func (f *fixture) restart(cfg Config) {
	f.stop()
	f.succeed(cfg)
	f.start()
}

// settle lets 50 ms pass: enough for statements, too little for any pause.
func (f *fixture) settle() { f.pass(50 * time.Millisecond) }

func (f *fixture) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's time, not ours
	synctest.Wait()
}

// eventOf is an event on its way: "id key exchange/routingkey", key "-": none. The fault, when
// there is one, is why it is deferred.
func (f *fixture) eventOf(spec string, fault *sink.Fault) *inflight.Event {
	part := strings.Fields(spec)
	id, key, to := part[0], strings.Trim(part[1], "-"), part[2]
	f.next += 16
	ev := event.Event{
		Position: event.Position{Commit: f.next}, ID: []byte(id), Key: []byte(key), Type: []byte(to), Payload: []byte("payload of " + id),
		Ordered: key != "", Hash: digest("key " + key), CommitTime: time.Now(), Time: time.Now(),
	}
	if n := f.sizes[id]; n > 0 {
		ev.Payload = make([]byte, n)
	}
	if key == "" {
		ev.Hash = digest(ev.Position.String())
	}
	place, _ := f.sink.Place(&ev)
	e := &inflight.Event{Event: ev, Place: place, Size: ev.Size(), Refusal: fault}
	group, ordered := f.table.cfg.Scope.Group(&ev, place.ExchangeOrTopic)
	if ordered {
		e.Group = group
	}
	if fault != nil {
		e.Since = time.Now()
		if e.Dead = fault.Class == sink.Permanent; fault.Class != sink.Destination {
			e.Attempts = 1
		}
	}
	exchange, _, _ := strings.Cut(to, "/")
	names.Store(place.ExchangeOrTopic, exchange)
	names.Store(group, key+"@"+exchange)
	if !ordered {
		names.Store(group, id)
	}
	return e
}

// deferRows hands events over as a lane does. The first may have a fault.
func (f *fixture) deferRows(fault *sink.Fault, specs ...string) {
	var all []*inflight.Event
	for _, spec := range specs {
		all = append(all, f.eventOf(spec, fault))
		fault = nil
	}
	f.table.Defer(all)
}

// wantOf is the want of the lane of a key for its rows: "key@exchange", behind the row of an id, if
// there is one.
func (f *fixture) wantOf(group string, behind ...string) (lane int, w order.Want) {
	key, exchange, _ := strings.Cut(group, "@")
	x := digest(exchange)
	w = order.Want{Want: store.Want{Group: max(digest("key "+key)^x, 1)}, ExchangeOrTopic: x}
	names.Store(w.Group, group)
	for _, id := range behind {
		row := f.row(id)
		w.After = store.After{Incarnation: row.Incarnation, Position: row.Event.Position}
	}
	return laneOf(key), w
}

// read has the lane of a key want its rows.
func (f *fixture) read(group string, behind ...string) {
	lane, w := f.wantOf(group, behind...)
	f.table.Read(lane, []order.Want{w}, nil)
}

// gets wants the rows of a key, and checks what the lane is told.
func (f *fixture) gets(group, want string) {
	f.t.Helper()
	f.settle()
	f.line.said()
	f.read(group)
	f.settle()
	f.said("found " + strings.TrimSpace(group+" "+want))
}

// said checks what the line was told since the last time, line by line.
func (f *fixture) said(want ...string) {
	f.t.Helper()
	f.equal("the line was told", f.line.said(), strings.Join(want, "\n"))
}

// saidInAnyOrder checks the same in any order.
func (f *fixture) saidInAnyOrder(want ...string) {
	f.t.Helper()
	got := strings.Split(f.line.said(), "\n")
	slices.Sort(got)
	slices.Sort(want)
	f.equal("the line was told", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

// rows is what is deferred: ids in order of position.
func (f *fixture) rows() string {
	var ids []string
	for _, r := range f.db.Deferred(slot) {
		ids = append(ids, string(r.Event.ID))
	}
	return strings.Join(ids, " ")
}

func (f *fixture) row(id string) *store.Row {
	f.t.Helper()
	for _, r := range f.db.Deferred(slot) {
		if string(r.Event.ID) == id {
			return r
		}
	}
	f.t.Fatalf("%s is not deferred", id)
	return nil
}

func (f *fixture) deadLetters() string {
	var ids []string
	for _, l := range f.db.DeadLetters(slot) {
		ids = append(ids, fmt.Sprintf("%s:%s", l.Row.Event.ID, l.State))
	}
	return strings.Join(ids, " ")
}

func (f *fixture) equal(what, got, want string) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// pause has a destination refuse: "exchange/key", or a whole "exchange".
func (f *fixture) pause(to string) {
	fault := itsRoute
	if !strings.Contains(to, "/") {
		fault = itsExchange
	}
	f.line.pauses.Refused(placeOf(to), fault, time.Now())
}

// unpause has it confirm a row.
func (f *fixture) unpause(to string) { f.line.pauses.Confirmed(placeOf(to), true, time.Now()) }

// walk has a lane ask for a walk through an exchange.
func (f *fixture) walk(exchange string) { f.table.Read(0, nil, []uint64{digest(exchange)}) }

// ask stores a request about the row or dead letter of an event.
func (f *fixture) ask(kind store.RequestKind, id string, to ...string) int64 {
	f.t.Helper()
	q := memorytest.Request{Slot: slot, System: "1", Kind: kind}
	for _, l := range f.db.DeadLetters(slot) {
		if string(l.Row.Event.ID) == id {
			q.N = l.Row.N
		}
	}
	if q.N == 0 {
		q.N = f.row(id).N
	}
	if len(to) > 0 {
		name, key, _ := strings.Cut(to[0], "/")
		q.Route = event.Route{Name: []byte(name), RoutingKey: []byte(key)}
	}
	return f.db.AddRequest(q)
}

// asked is the state of requests.
func (f *fixture) asked(ids ...int64) string {
	var states []string
	for _, id := range ids {
		q, _ := f.db.RequestByID(id)
		states = append(states, q.State)
	}
	return strings.Join(states, "+")
}
