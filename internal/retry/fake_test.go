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
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// digest of a name.
func digest(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// fakeSink knows where events belong: by their Route, or their type "exchange/key".
type fakeSink struct{}

func (fakeSink) Route(ev *event.Event) event.Route {
	name, key, _ := strings.Cut(string(ev.Type), "/")
	return event.Route{Name: []byte(name), RoutingKey: []byte(key)}
}

func (s fakeSink) Place(ev *event.Event) (sink.Place, bool) {
	to := s.Route(ev)
	if ev.Route != nil {
		to = *ev.Route
	}
	return sink.Place{Lane: int(ev.Hash % 8), ExchangeOrTopic: digest(string(to.Name)), Dest: digest(string(to.Name) + "/" + string(to.RoutingKey))}, true
}

// placeOf is the place of "exchange/key".
func placeOf(to string) sink.Place {
	name, _, _ := strings.Cut(to, "/")
	return sink.Place{ExchangeOrTopic: digest(name), Dest: digest(to)}
}

// fakeLine answers what it is offered at once, or when the test says so, and remembers everything.
// Its lanes are as simple as lanes can be that keep the contract: of an ordering group one row at a
// time, and behind a refused one the rest comes back unsent.
type fakeLine struct {
	s       *Table
	changed chan struct{}

	mu        sync.Mutex
	log       []string
	answer    func(f *relay.Fed) sink.Outcome // nil: confirmed
	keep      bool                            // what is offered waits for release
	stays     func(f *relay.Fed) bool         // what is not released; nil: all is
	delay     time.Duration                   // else it takes this long, and a millisecond
	kept      []*relay.Fed
	inLane    map[uint64]int // rows of each ordering group
	most      int            // rows that were in the lanes at the same time
	rows      int
	laneRows  map[int]int
	counts    map[uint64]int // of each ordering group; Left
	paused    map[target]bool
	broken    map[string]*sink.Fault // "exchange" or "exchange/key": refuses everything
	confirmed map[uint64]time.Time
	failure   string
}

func newFakeLine() *fakeLine {
	return &fakeLine{
		changed: make(chan struct{}, 1), inLane: map[uint64]int{}, laneRows: map[int]int{}, counts: map[uint64]int{},
		paused: map[target]bool{}, confirmed: map[uint64]time.Time{}, broken: map[string]*sink.Fault{},
	}
}

func (l *fakeLine) say(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

func (l *fakeLine) Settled(deferred []*relay.Deferred) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range deferred {
		l.say("settled %s", p.Event.ID)
		*p.Event = event.Event{ID: []byte("reused")} // as the budget does
		*p = relay.Deferred{Event: p.Event}
	}
}

func (l *fakeLine) Offer(rows []*relay.Fed) {
	l.mu.Lock()
	ids := []string{"offer"}
	for _, f := range rows {
		ids = append(ids, string(f.Event.ID))
		l.rows++
		l.inLane[f.Group]++
		l.laneRows[f.Place.Lane]++
	}
	l.say("%s", strings.Join(ids, " "))
	l.most = max(l.most, l.rows)
	l.kept = append(l.kept, rows...)
	keep := l.keep
	l.mu.Unlock()
	if !keep {
		go l.release(0)
	}
}

// release has the lanes deal with the first n rows offered, all when n is 0.
func (l *fakeLine) release(n int) {
	l.mu.Lock()
	if n == 0 || n > len(l.kept) {
		n = len(l.kept)
	}
	rows, rest := []*relay.Fed{}, slices.Clone(l.kept[n:])
	for _, f := range l.kept[:n] {
		if l.stays != nil && l.stays(f) {
			rest = append(rest, f)
		} else {
			rows = append(rows, f)
		}
	}
	l.kept = rest
	delay := l.delay
	l.mu.Unlock()
	time.Sleep(time.Millisecond + delay) //nolint:forbidigo // the bubble's time, not ours
	l.mu.Lock()
	refused := map[uint64]bool{}
	for _, f := range rows {
		if f.Group != 0 && refused[f.Group] {
			f.Outcome.State = sink.Unsent
		} else {
			l.deal(f)
			refused[f.Group] = f.Outcome.State != sink.Confirmed
		}
		l.rows--
		l.inLane[f.Group]--
		l.laneRows[f.Place.Lane]--
	}
	l.mu.Unlock()
	l.s.Fed(rows)
}

// inLanes is how many rows the lanes have, and had at the most.
func (l *fakeLine) inLanes() (now, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows, l.most
}

// releaseBut has all lanes but one deal with what they have.
func (l *fakeLine) releaseBut(lane int) {
	l.mu.Lock()
	var rest []*relay.Fed
	l.kept = slices.DeleteFunc(l.kept, func(f *relay.Fed) bool {
		if f.Place.Lane == lane {
			rest = append(rest, f)
		}
		return f.Place.Lane == lane
	})
	n := len(l.kept)
	l.kept = append(l.kept, rest...)
	l.mu.Unlock()
	if n > 0 {
		l.release(n)
	}
}

// deferredEvent is what a lane hands over.
type deferredEvent = relay.Deferred

func (l *fakeLine) deal(f *relay.Fed) {
	f.Outcome.State = sink.Confirmed
	if l.answer != nil {
		f.Outcome = l.answer(f)
	}
	to := string(f.Event.Route.Name)
	for _, name := range []string{to + "/" + string(f.Event.Route.RoutingKey), to} {
		if fault := l.broken[name]; fault != nil {
			f.Outcome = rejected(fault)
		}
	}
	switch f.Outcome.State {
	case sink.Confirmed:
		l.say("sent %s", f.Event.ID)
		l.open(f.Place)
		if f.Group != 0 && !f.Replay {
			l.counts[f.Group]--
			f.Left = l.counts[f.Group]
		}
	case sink.Rejected:
		l.say("refused %s", f.Event.ID)
		if f := f.Outcome.Fault; f.Class != sink.Destination || f.Text == "cannot be paused" {
			return
		}
		if f.Outcome.Fault.Whole {
			l.paused[target{f.Place.ExchangeOrTopic, 0}] = true
		} else {
			l.paused[target{f.Place.ExchangeOrTopic, f.Place.Dest}] = true
		}
	case sink.Unsent, sink.Unknown:
	}
}

func (l *fakeLine) open(p sink.Place) {
	was := len(l.paused)
	delete(l.paused, target{p.ExchangeOrTopic, 0})
	delete(l.paused, target{p.ExchangeOrTopic, p.Dest})
	if len(l.paused) < was {
		signal(l.changed)
	}
}

func (l *fakeLine) NotNow(lane int, group, exchangeOrTopic uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say("not now %s", l.nameOf(group))
}

func (l *fakeLine) Uncount(lane int, group, exchangeOrTopic uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[group]--
	l.say("uncount %s", l.nameOf(group))
}

func (l *fakeLine) Load(_ context.Context, ev *event.Event, rows int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, _ := fakeSink{}.Place(ev)
	l.counts[l.Group(ev, p.ExchangeOrTopic)] += rows
	return nil
}

func (l *fakeLine) Paused(p sink.Place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.paused[target{p.ExchangeOrTopic, 0}] || l.paused[target{p.ExchangeOrTopic, p.Dest}]
}

// pauseCount is how many destinations are paused.
func (l *fakeLine) pauseCount() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(len(l.paused))
}

func (l *fakeLine) Forget(p sink.Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.paused, target{p.ExchangeOrTopic, p.Dest})
}

func (l *fakeLine) Resumed() <-chan struct{} { return l.changed }

func (l *fakeLine) ConfirmedSince(dest uint64, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed[dest].After(since)
}

func (l *fakeLine) Group(ev *event.Event, exchangeOrTopic uint64) uint64 {
	if !ev.Ordered {
		return 0
	}
	return max(ev.Hash^exchangeOrTopic, 1)
}

// names of ordering groups, for the log.
var groupNames sync.Map

func (l *fakeLine) nameOf(group uint64) string {
	if n, ok := groupNames.Load(group); ok {
		return n.(string)
	}
	return fmt.Sprint(group)
}

// said takes what happened since the last call.
func (l *fakeLine) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return strings.Join(log, "\n")
}

// sentIDs are the ids that were sent, in order.
func (l *fakeLine) sentIDs() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, s := range l.log {
		if id, ok := strings.CutPrefix(s, "sent "); ok {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, " ")
}

func (l *fakeLine) set(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// shut breaks "exchange/key" or "exchange", and pauses it.
func (l *fakeLine) shut(to string) {
	l.set(func() {
		p := placeOf(to)
		l.broken[to] = itsRoute
		if !strings.Contains(to, "/") {
			p.Dest = 0
			l.broken[to] = itsExchangeOrTopic
		}
		l.paused[target{p.ExchangeOrTopic, p.Dest}] = true
	})
}

// fix ends that. The destination stays paused until a probe finds out.
func (l *fakeLine) fix(to string) { l.set(func() { delete(l.broken, to) }) }

// The faults of the tests.
var (
	errLost            = errors.New("connection lost")
	itsRoute           = &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Text: "NO_ROUTE", Destination: "there"}
	itsExchangeOrTopic = &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Text: "NOT_FOUND", Destination: "there", Whole: true}
	notPausable        = &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Text: "cannot be paused", Destination: "there"}
	transient          = &sink.Fault{Class: sink.Transient, Reason: sink.BrokerException, Text: "541"}
	permanent          = &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge, Text: "too large"}
)

func rejected(f *sink.Fault) sink.Outcome { return sink.Outcome{State: sink.Rejected, Fault: f} }

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
	alone  string          // id of a row that is read alone
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

// isBad reports whether the row of an id is refused.
func (s *faultyStore) isBad(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad[id]
}

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

// done takes the calls made since the last time.
func (s *faultyStore) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *faultyStore) Lease(ctx context.Context) (n int64, err error) {
	err = s.call("lease", func() (err error) { n, err = s.Store.Lease(ctx); return err })
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

func (s *faultyStore) Runs(ctx context.Context, groups []uint64, run int, size, acked int64) (runs []store.Run, err error) {
	err = s.call("runs", func() (err error) { runs, err = s.Store.Runs(ctx, groups, run, size, acked); return err })
	for i := range runs {
		s.cut(&runs[i])
		for _, row := range runs[i].Rows {
			if err == nil {
				err = s.read(row)
			}
		}
	}
	return runs, err
}

// cut ends a run before the row that is read alone, or behind it.
func (s *faultyStore) cut(r *store.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(r.Rows, func(row *store.Row) bool { return string(row.Event.ID) == s.alone })
	if at == 0 {
		at = 1
	}
	if at > 0 && at < len(r.Rows) {
		r.Rows, r.More = r.Rows[:at], true
	}
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

func (s *faultyStore) Sweep(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	err = s.call("sweep", func() (err error) { groups, next, err = s.Store.Sweep(ctx, at, limit); return err })
	return groups, next, err
}

func (s *faultyStore) Skip(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	err = s.call("skip", func() (err error) { next, ok, err = s.Store.Skip(ctx, at); return err })
	return next, ok, err
}

func (s *faultyStore) Due(ctx context.Context, limit int) (groups []uint64, next time.Duration, err error) {
	err = s.call("due", func() (err error) { groups, next, err = s.Store.Due(ctx, limit); return err })
	return groups, next, err
}

func (s *faultyStore) Apply(ctx context.Context, results []store.Result) error {
	var what []string
	for _, r := range results {
		what = append(what, [...]string{"delivered", "backoff", "dead"}[r.Kind]+" "+string(r.Row.Event.ID))
	}
	return s.call("apply "+strings.Join(what, " "), func() error { return s.Store.Apply(ctx, results) })
}

func (s *faultyStore) Requests(ctx context.Context, limit int, size int64) (list []store.Request, err error) {
	err = s.call("requests", func() (err error) { list, err = s.Store.Requests(ctx, limit, size); return err })
	for _, q := range list {
		if err == nil && q.Row != nil && q.Row.Event.Payload != nil {
			err = s.read(q.Row)
		}
	}
	return list, err
}

func (s *faultyStore) Answer(ctx context.Context, answers []store.Answer) (done []bool, err error) {
	var what []string
	for _, a := range answers {
		what = append(what, string(a.Request.Kind))
	}
	err = s.call("answer "+strings.Join(what, " "), func() (err error) { done, err = s.Store.Answer(ctx, answers); return err })
	return done, err
}

func (s *faultyStore) Positions(ctx context.Context, from event.Position, limit int) (list []store.Owned, err error) {
	err = s.call("positions", func() (err error) { list, err = s.Store.Positions(ctx, from, limit); return err })
	return list, err
}

// fixture is a retry table between a fake line and tables in memory.
type fixture struct {
	t     *testing.T
	db    *memorytest.Database
	store *faultyStore
	line  *fakeLine
	s     *Table
	next  pglogrepl.LSN
	sizes map[string]int

	fed, deferred, dead, exhausted atomic.Int64
	cancel                         context.CancelFunc
	ended                          chan error
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
	f.line = newFakeLine()
	epoch := f.db.Lead(slot)
	f.store = &faultyStore{bad: map[string]bool{}, Store: f.db.Store(store.Config{Slot: slot, SystemID: "1", Incarnation: 1, Epoch: epoch, Block: cfg.Block})}
	cfg.Slot, cfg.Epoch, cfg.Incarnation, cfg.Store, cfg.Sink = slot, epoch, 1, f.store, fakeSink{}
	cfg.Jitter = cmpJitter(cfg.Jitter)
	cfg.Hooks = Hooks{
		Deferred: func(n int) { f.deferred.Add(int64(n)) }, Dead: func(n int) { f.dead.Add(int64(n)) },
		Exhausted: func(n int) { f.exhausted.Add(int64(n)) }, Retried: func(n int) { f.fed.Add(int64(n)) },
	}
	f.s = New(cfg)
	f.line.s = f.s
}

func cmpJitter(j func(time.Duration) time.Duration) func(time.Duration) time.Duration {
	if j == nil {
		return func(most time.Duration) time.Duration { return most }
	}
	return j
}

// start loads and runs.
func (f *fixture) start() {
	f.t.Helper()
	if err := f.s.Load(f.t.Context(), f.line); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.ended = cancel, make(chan error, 1)
	go func() { f.ended <- f.s.Run(ctx) }()
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
	if f.line.failure != "" {
		f.t.Error(f.line.failure)
	}
	time.Sleep(time.Second) //nolint:forbidigo // lanes of the fake that are under way end
}

// settle lets 50 ms pass: enough for statements and sends, too little for any backoff.
func (f *fixture) settle() { f.pass(50 * time.Millisecond) }

func (f *fixture) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's time, not ours
	synctest.Wait()
}

// event is one of a key ("": none) to "exchange/key".
func (f *fixture) event(id, key, to string) *event.Event {
	f.next += 16
	ev := &event.Event{
		Position: event.Position{Commit: f.next}, ID: []byte(id), Key: []byte(key), Type: []byte(to), Payload: []byte("payload of " + id),
		Ordered: key != "", Hash: digest("key " + key), CommitTime: time.Now(), Time: time.Now(),
	}
	if n := f.sizes[id]; n > 0 {
		ev.Payload = make([]byte, n)
	}
	if key == "" {
		ev.Hash = digest(ev.Position.String())
	}
	return ev
}

// deferredOf is such an event on its way to the retry table; the fault, when there is one, is why.
func (f *fixture) deferredOf(id, key, to string, fault *sink.Fault) *relay.Deferred {
	ev := f.event(id, key, to)
	place, _ := fakeSink{}.Place(ev)
	p := &relay.Deferred{Event: ev, Place: place, Group: f.line.Group(ev, place.ExchangeOrTopic), Fault: fault}
	if fault != nil {
		p.Since = time.Now()
		if fault.Class != sink.Destination {
			p.Attempts = 1
		}
		p.Dead = fault.Class == sink.Permanent
	}
	if p.Group != 0 {
		name, _, _ := strings.Cut(to, "/")
		groupNames.Store(p.Group, key+"@"+name)
	}
	return p
}

// deferRow counts events as a lane does, and hands them over. Each is "id key exchange/routingkey";
// the first may have a fault.
func (f *fixture) deferRow(fault *sink.Fault, specs ...string) {
	var all []*relay.Deferred
	for i, spec := range specs {
		part := strings.Fields(spec)
		if i > 0 {
			fault = nil
		}
		p := f.deferredOf(part[0], strings.Trim(part[1], "-"), part[2], fault)
		if p.Group != 0 && (!p.Dead || f.s.cfg.Block) {
			f.line.set(func() { f.line.counts[p.Group]++ })
		}
		all = append(all, p)
	}
	f.s.Defer(all)
}

// table is what is deferred: ids in order of position.
func (f *fixture) table() string {
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

// answers makes the broker refuse ids, by fault.
func (f *fixture) answers(by map[string]*sink.Fault) {
	f.line.set(func() {
		f.line.answer = func(fed *relay.Fed) sink.Outcome {
			if fault := by[string(fed.Event.ID)]; fault != nil {
				return rejected(fault)
			}
			return sink.Outcome{State: sink.Confirmed}
		}
	})
}
