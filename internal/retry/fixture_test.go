package retry

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
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
	epoch := f.db.RaiseEpoch(slot)
	f.store = &faultyStore{bad: map[string]bool{}, Store: f.db.Store(store.Config{Slot: slot, SystemID: "1", Incarnation: 1, Epoch: epoch, Block: cfg.Block})}
	cfg.Slot, cfg.Epoch, cfg.Incarnation, cfg.Store, cfg.Sink = slot, epoch, 1, f.store, f.sink
	cfg.Hooks.Deferred, cfg.Hooks.Dead = func(n int) { f.deferred.Add(int64(n)) }, func(n int) { f.dead.Add(int64(n)) }
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
		w.After = store.RowPosition{Incarnation: row.Incarnation, Position: row.Event.Position}
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

// digest of a name.
func digest(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// fakeSink knows where events belong: by their Route, or their type "exchange/key". The lane is the
// last digit of the key.
type fakeSink struct {
	mu      sync.Mutex
	unknown string // the exchange of which nothing is known now
}

func (*fakeSink) Route(ev *event.Event) event.Route {
	name, key, _ := strings.Cut(string(ev.Type), "/")
	return event.Route{Name: []byte(name), RoutingKey: []byte(key)}
}

func (s *fakeSink) Place(ev *event.Event) (sink.Place, bool) {
	to := s.Route(ev)
	if ev.Route != nil {
		to = *ev.Route
	}
	p := placeOf(string(to.Name) + "/" + string(to.RoutingKey))
	p.Lane = laneOf(string(ev.Key))
	s.mu.Lock()
	defer s.mu.Unlock()
	return p, s.unknown == "" || s.unknown != string(to.Name)
}

// Held is what an operator does about a missing exchange; y has none who must.
func (*fakeSink) Held(exchangeOrTopic uint64) string {
	if exchangeOrTopic == placeOf("y/").ExchangeOrTopic {
		return ""
	}
	return "bind"
}

func (s *fakeSink) forget(exchange string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = exchange
}

func laneOf(key string) int {
	if key != "" {
		if last := key[len(key)-1]; last >= '0' && last <= '9' {
			return int(last - '0')
		}
	}
	return 0
}

// placeOf is the place of "exchange/key".
func placeOf(to string) sink.Place {
	name, _, _ := strings.Cut(to, "/")
	return sink.Place{ExchangeOrTopic: digest(name), Dest: digest(to)}
}

// fakeLine is the line. Its lanes ask for nothing and give nothing back by themselves.
type fakeLine struct {
	t      *testing.T
	table  *Table
	pauses *order.Pauses

	mu    sync.Mutex
	log   []string
	rows  map[string]*inflight.Event // what the lanes have, by id
	lanes map[string]int             // where that is
	given map[*inflight.Event]string // what they gave back, with its id
	most  int                        // rows that the lanes had at one time
	held  *store.Request             // the last request about a row
	// a lane gives back at once what a walk finds, as for a group that it knows; keep: it does not
	keep bool
}

func newFakeLine(cfg order.PausesConfig) *fakeLine {
	return &fakeLine{pauses: order.NewPauses(cfg), rows: map[string]*inflight.Event{}, lanes: map[string]int{}, given: map[*inflight.Event]string{}}
}

func (l *fakeLine) Pauses() *order.Pauses { return l.pauses }

func (l *fakeLine) Committed(events []*inflight.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.say("committed %s", e.ID)
		*e = inflight.Event{Event: event.Event{ID: []byte("reused")}} // as the budget does
	}
}

func (l *fakeLine) Found(lane int, found []order.Found) {
	l.mu.Lock()
	var back []order.Result
	for _, f := range found {
		l.say("%s", l.describe(&f))
		for _, e := range f.Rows {
			if f.Walk && !l.keep {
				back = append(back, order.Result{Event: e, Returned: true})
				continue
			}
			l.rows[string(e.ID)], l.lanes[string(e.ID)] = e, lane
		}
		if f.Replay != nil {
			l.rows[string(f.Replay.ID)], l.lanes[string(f.Replay.ID)] = f.Replay, lane
		}
		if f.Request != nil {
			l.held = f.Request
		}
	}
	l.most = max(l.most, len(l.rows))
	l.mu.Unlock()
	if len(back) > 0 {
		go l.table.Finish(back)
	}
}

// describe is what was found, in the words of the tests.
func (l *fakeLine) describe(f *order.Found) string {
	var s strings.Builder
	switch {
	case f.Unsure:
		return "unsure " + nameOf(f.ExchangeOrTopic)
	case f.WalkBegins:
		return "begins " + nameOf(f.ExchangeOrTopic)
	case f.WalkEnds:
		return "ends " + nameOf(f.ExchangeOrTopic)
	case f.Changed:
		return "changed " + nameOf(f.Group)
	case f.Request != nil:
		return fmt.Sprintf("asked to %s %s", f.Request.Kind, nameOf(f.Group))
	case f.Replay != nil:
		return fmt.Sprintf("replay %s to %s/%s", f.Replay.ID, f.Replay.Event.Route.Name, f.Replay.Event.Route.RoutingKey)
	case f.Walk:
		s.WriteString("walk ")
	default:
		s.WriteString("found ")
	}
	s.WriteString(nameOf(f.Group))
	for _, e := range f.Rows {
		fmt.Fprintf(&s, " %s", e.ID)
	}
	switch {
	case f.Blocked:
		s.WriteString(" blocked")
	case f.Failed:
		s.WriteString(" failed")
	case f.More:
		s.WriteString(" more")
	}
	return s.String()
}

func (l *fakeLine) Finished(_ int, results []order.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if r.Request != nil {
			l.say("answered %s", r.Request.Kind)
			continue
		}
		l.say("finished %s", l.given[r.Event])
		// a lane may keep the event for as long as a call takes
		if kept := r.Event.Event.Size() + r.Event.Row.Event.Size(); kept > 0 {
			l.t.Errorf("a row whose result is committed keeps %d bytes", kept)
		}
	}
}

func (l *fakeLine) say(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

// said takes what happened since the last call.
func (l *fakeLine) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return strings.Join(log, "\n")
}

// was reports whether this has happened since the last call of said.
func (l *fakeLine) was(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.log, what)
}

// has is how many rows the lanes have.
func (l *fakeLine) has() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rows)
}

// ids are those of the rows that the lanes have.
func (l *fakeLine) ids() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.rows {
		ids = append(ids, id)
	}
	return ids
}

// take takes a row from its lane.
func (l *fakeLine) take(id string) *inflight.Event {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.rows[id]
	if e == nil {
		l.t.Fatalf("no lane has %s", id)
	}
	delete(l.rows, id)
	l.given[e] = id
	return e
}

// finish gives rows back: "delivered", "backoff", "dead", or "returned", which writes nothing.
func (l *fakeLine) finish(what string, ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		e := l.take(id)
		r := order.Result{Event: e, Returned: what == "returned", Request: e.Request}
		if !r.Returned && r.Request == nil {
			r.Result = store.Result{Row: e.Row, Kind: kinds[what]}
		}
		l.table.Finish([]order.Result{r})
	}
}

var kinds = map[string]store.ResultKind{"delivered": store.Delivered, "backoff": store.Backoff, "dead": store.Dead}

// outcome is the broker's answer to a replay.
func (l *fakeLine) outcome(id string, out sink.Outcome) {
	l.t.Helper()
	e := l.take(id)
	e.State, e.Refusal = out.State, out.Fault
	l.table.Finish([]order.Result{{Event: e, Request: e.Request}})
}

// rest has the group of the request that was held come to rest; returned: it does not now.
func (l *fakeLine) rest(returned bool) {
	l.mu.Lock()
	q := l.held
	l.held = nil
	l.mu.Unlock()
	l.table.Finish([]order.Result{{Request: q, Returned: returned}})
}

// names of digests, for the log.
var names sync.Map

func nameOf(digest uint64) string {
	if n, ok := names.Load(digest); ok {
		return n.(string)
	}
	return fmt.Sprint(digest)
}

// The faults of the tests.
var (
	itsRoute    = &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Text: "NO_ROUTE", Destination: "there"}
	itsExchange = &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Text: "NOT_FOUND", Destination: "there", Whole: true}
	transient   = &sink.Fault{Class: sink.Transient, Reason: sink.BrokerException, Text: "541"}
	permanent   = &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge, Text: "too large"}
)

func rejected(f *sink.Fault) sink.Outcome { return sink.Outcome{State: sink.Rejected, Fault: f} }

var errLost = errors.New("connection lost")

// faultyStore is a store in memory whose statements take a while, fail, or succeed without an
// answer, when the test says so.
type faultyStore struct {
	*memorytest.Store
	mu    sync.Mutex
	calls []string
	// fault is asked at each call: an error, and whether the statement is carried out all the same.
	fault  func(call string) (err error, done bool)
	bad    map[string]bool // ids of rows that are refused
	named  bool            // a Refused names its row
	torn   map[string]bool // ids of rows that cannot be read
	defers [][]int64       // numbers of the rows of each Defer
}

func (s *faultyStore) call(what string, do func() error) error {
	time.Sleep(time.Millisecond) //nolint:forbidigo // the bubble's time, not ours
	s.mu.Lock()
	s.calls = append(s.calls, what)
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err, done := fault(what); err != nil {
			if done {
				if err := do(); err != nil {
					return err
				}
			}
			return err
		}
	}
	return do()
}

func (s *faultyStore) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// fails has the calls that begin so fail with that error; done: they are carried out all the same.
func (s *faultyStore) fails(prefix string, err error, done bool) {
	s.set(func() {
		s.fault = func(call string) (error, bool) {
			if strings.HasPrefix(call, prefix) {
				return err, done
			}
			return nil, false
		}
	})
}

// accept ends all faults of the database.
func (s *faultyStore) accept() { s.set(func() { s.fault = nil }) }

// count is how many calls began so.
func (s *faultyStore) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// done takes the calls made since the last time that began so.
func (s *faultyStore) done(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []string
	for _, c := range s.calls {
		if strings.HasPrefix(c, prefix) {
			calls = append(calls, c)
		}
	}
	s.calls = nil
	return strings.Join(calls, ", ")
}

func (s *faultyStore) LeaseNumbers(ctx context.Context) (n int64, err error) {
	err = s.call("lease", func() (err error) { n, err = s.Store.LeaseNumbers(ctx); return err })
	return n, err
}

func (s *faultyStore) Defer(ctx context.Context, rows []*store.Row) error {
	var ids []string
	var numbers []int64
	for _, r := range rows {
		ids = append(ids, string(r.Event.ID))
		numbers = append(numbers, r.N)
	}
	s.set(func() { s.defers = append(s.defers, numbers) })
	return s.call("defer "+strings.Join(ids, " "), func() error {
		for _, r := range rows {
			s.mu.Lock()
			bad, named := s.bad[string(r.Event.ID)], s.named
			s.mu.Unlock()
			if bad && named {
				return &store.Refused{Row: r, Err: errors.New("invalid byte")}
			} else if bad {
				return &store.Refused{Err: errors.New("invalid byte")}
			}
		}
		return s.Store.Defer(ctx, rows)
	})
}

func (s *faultyStore) ReadRows(ctx context.Context, wants []store.Want, run int, size, acked int64) (runs []store.RowRun, err error) {
	err = s.call("read", func() (err error) { runs, err = s.Store.ReadRows(ctx, wants, run, size, acked); return err })
	for _, r := range runs {
		for _, row := range r.Rows {
			if err == nil {
				err = s.read(row)
			}
		}
	}
	return runs, err
}

// read is what it meets to read a row.
func (s *faultyStore) read(row *store.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.torn[string(row.Event.ID)] {
		return fmt.Errorf("read: %w", &store.Refused{Err: errors.New("missing chunk number 0")})
	}
	return nil
}

func (s *faultyStore) GroupsOfDestination(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	err = s.call("sweep", func() (err error) { groups, next, err = s.Store.GroupsOfDestination(ctx, at, limit); return err })
	return groups, next, err
}

func (s *faultyStore) NextDestination(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	err = s.call("skip", func() (err error) { next, ok, err = s.Store.NextDestination(ctx, at); return err })
	return next, ok, err
}

func (s *faultyStore) ApplyResults(ctx context.Context, results []store.Result) error {
	var what []string
	for _, r := range results {
		what = append(what, [...]string{"delivered", "backoff", "dead"}[r.Kind]+" "+string(r.Row.Event.ID))
	}
	return s.call("apply "+strings.Join(what, " "), func() error { return s.Store.ApplyResults(ctx, results) })
}

func (s *faultyStore) WaitingRequests(ctx context.Context, limit int, size int64) (list []store.Request, err error) {
	err = s.call("requests", func() (err error) { list, err = s.Store.WaitingRequests(ctx, limit, size); return err })
	for _, q := range list {
		if err == nil && q.Row != nil && q.Row.Event.Payload != nil {
			err = s.read(q.Row)
		}
	}
	return list, err
}

func (s *faultyStore) BeginReplay(ctx context.Context, request int64) error {
	return s.call("begin", func() error { return s.Store.BeginReplay(ctx, request) })
}

func (s *faultyStore) AnswerRequests(ctx context.Context, answers []store.Answer) (done []bool, err error) {
	var what []string
	for _, a := range answers {
		what = append(what, string(a.Request.Kind))
	}
	err = s.call("answer "+strings.Join(what, " "), func() (err error) { done, err = s.Store.AnswerRequests(ctx, answers); return err })
	return done, err
}

func (s *faultyStore) PositionsFrom(ctx context.Context, from event.Position, limit int) (list []store.StoredPosition, err error) {
	err = s.call("positions", func() (err error) { list, err = s.Store.PositionsFrom(ctx, from, limit); return err })
	return list, err
}
