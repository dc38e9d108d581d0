package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	replicationslot "github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"github.com/cdc-relay/cdc-relay/internal/replication/takeover"
)

// taking is a takeover on its way.
type taking struct {
	b      *bench
	stop   context.CancelFunc
	states chan takeover.State
	done   chan struct{}
	state  takeover.State
	err    error
}

func (b *bench) take(o *otherTool, opt takeover.Options) *taking {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	k := &taking{b: b, stop: stop, states: make(chan takeover.State, 1000), done: make(chan struct{})}
	opt.From, opt.Tell = o.slot, func(s takeover.State) {
		select {
		case k.states <- s:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(k.done)
		k.state, k.err = takeover.Run(ctx, b.cfg, opt)
	}()
	b.t.Cleanup(func() { stop(); <-k.done })
	return k
}

// takeover is a run of the command that has met the server, and no more.
func (b *bench) takeover(c *source.Config, o *otherTool) *takeover.Takeover {
	b.t.Helper()
	pool, err := source.ConnectPool(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	stream, id, err := replicationslot.Connect(await.Context(b.t), pool, c)
	if err != nil {
		b.t.Fatal(err)
	}
	source.CloseStream(stream)
	return &takeover.Takeover{C: c, Opt: takeover.Options{From: o.slot}, Pool: pool, ID: id}
}

// asLongAsItTakes waits for the other program.
var asLongAsItTakes = takeover.Options{Wait: -1}

// waitTold returns when the command says so.
func (k *taking) waitTold(what string, ok func(takeover.State) bool) takeover.State {
	k.b.t.Helper()
	for {
		select {
		case s := <-k.states:
			if ok(s) {
				return s
			}
		case <-k.done:
			k.b.t.Fatalf("ended, before it said %s: %+v, %v", what, k.state, k.err)
		case <-time.After(2 * time.Minute):
			k.b.t.Fatalf("it has said nothing for two minutes: no %s", what)
		}
	}
}

func (k *taking) wait() (takeover.State, error) {
	k.b.t.Helper()
	await.Closed(k.b.t, "the takeover to end", k.done)
	return k.state, k.err
}

func (k *taking) waitComplete() takeover.State {
	k.b.t.Helper()
	s, err := k.wait()
	if err != nil || !s.Complete {
		k.b.t.Fatalf("%+v, %v", s, err)
	}
	return s
}

// now checks once.
func (b *bench) now(o *otherTool) (takeover.State, error) {
	return b.take(o, takeover.Options{}).wait()
}

// takePassed begins a takeover of a slot whose program it starts, and returns when that has
// confirmed a commit, "both", behind the start of ours.
func (b *bench) takePassed(o *otherTool) (*taking, takeover.State) {
	b.t.Helper()
	o.start()
	k := b.take(o, asLongAsItTakes)
	k.waitTold("that the other slot is below", overlapping)
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	return k, k.waitTold("that the other slot has passed", passed)
}

func overlapping(s takeover.State) bool { return s.Start != 0 && !s.Passed }
func passed(s takeover.State) bool      { return s.Passed }

// The whole way: the other program has to pass our start, and to be stopped. What it has published
// and not confirmed comes twice, everything else once; also when the relay is started again before
// it has reported anything.
func TestTakeover(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.insert("before") // our slot does not have it
	k, overlap := b.takePassed(o)
	if !overlap.Active || !strings.Contains(overlap.Holder, toolName) {
		t.Errorf("the program is not named: %+v", overlap)
	}
	stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "takeover")
	if !strings.Contains(stop.What, o.slot) || !strings.Contains(stop.Fix, "--from-slot "+o.slot) {
		t.Error(stop)
	}
	replicationtest.WantStop(t, setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitOperator, "takeover")
	b.wantFinding("slot", "is not complete", "takeover --from-slot "+o.slot)
	b.insert("twice")
	o.waitSeen("twice")
	o.kill()
	b.insert("after")
	s := k.waitComplete()
	if s.Confirmed != o.at() || s.Dropped {
		t.Errorf("%+v, the other slot stands at %s", s, o.at())
	}
	p := b.through()
	b.held = true
	for range 2 {
		r := b.run()
		r.waitSeen("after")
		if seen := b.current().Seen(); !slices.Equal(seen, []string{"twice", "after"}) {
			t.Errorf("sent: %v", seen)
		}
		r.crash(p)
		b.waitFree()
	}
	b.held = false
	b.goesOn("later")
	b.wantLine(check.LevelWarn, "slot before", "retains WAL")
	o.start()
	b.wantLine(check.LevelWarn, "slot before", "in use again", toolName)
	_, err := b.take(o, takeover.Options{Wait: -1, Drop: true}).wait()
	if stop := replicationtest.WantStop(t, err, event.ExitOperator, "takeover"); !strings.Contains(stop.What, toolName) {
		t.Error(stop)
	}
	o.kill()
	await.Until(t, "the slot to be dropped", func() bool {
		s, err := b.take(o, takeover.Options{Wait: -1, Drop: true}).wait()
		return err == nil && s.Complete && s.Dropped && !o.exists()
	})
	b.goesOn("at last")
}

// As long as the other slot stands below our start, rows may be in it alone: nothing completes,
// whether its program runs or not.
func TestTakeoverWaitsForTheOtherSlot(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.insert("theirs alone")
	_, err := b.now(o)
	stop := replicationtest.WantStop(t, err, event.ExitOperator, "takeover")
	if !strings.Contains(stop.What, "nobody reads it") || !strings.Contains(stop.What, o.at().String()) || !strings.Contains(stop.Fix, "start the program") {
		t.Error(stop)
	}
	k := b.take(o, asLongAsItTakes)
	k.waitTold("that nobody reads the other slot", func(s takeover.State) bool { return overlapping(s) && !s.Active })
	o.start()
	o.waitSeen("theirs alone")
	k.waitTold("that somebody reads it", func(s takeover.State) bool { return overlapping(s) && s.Active })
	_, err = b.now(o)
	if stop := replicationtest.WantStop(t, err, event.ExitOperator, "takeover"); !strings.Contains(stop.Fix, toolName) {
		t.Error(stop)
	}
	o.confirm() // of a commit before our start
	if _, err = b.now(o); err == nil {
		t.Error("complete below our start")
	}
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	_, err = b.now(o)
	if stop := replicationtest.WantStop(t, err, event.ExitOperator, "takeover"); !strings.Contains(stop.What, "has passed") {
		t.Error(stop)
	}
	o.kill()
	k.waitComplete()
	if seen, _ := o.seen(); !slices.Equal(seen, []string{"theirs alone", "both"}) {
		t.Errorf("published: %v", seen)
	}
	b.goesOn("ours")
	if seen := b.current().Seen(); !slices.Equal(seen, []string{"ours"}) {
		t.Errorf("sent: %v", seen)
	}
}

// Rows are written all the time, in transactions that overlap, some of them long; the other program
// confirms now and then, and is stopped at some moment, in good order or not. Nothing is lost, and
// exactly what it had not confirmed comes twice.
func TestTakeoverUnderLoad(t *testing.T) { takeoverUnderLoad(t, false) }

// takeoverUnderLoad has the other program stopped in good order, or killed.
func takeoverUnderLoad(t *testing.T, inOrder bool) {
	t.Helper()
	b := shared(t)
	o := b.newTool()
	o.start()
	load := b.load(4)
	load.waitMore(50)
	k := b.take(o, asLongAsItTakes)
	k.waitTold("that the other slot is below", overlapping)
	for begun := false; !begun; { // it confirms until it has passed
		load.waitMore(20)
		o.confirm()
		select {
		case s := <-k.states:
			begun = s.Passed
		default:
		}
	}
	load.waitMore(100)
	if inOrder {
		load.pause(func() {
			for _, id := range load.all() {
				o.waitSeen(id)
			}
			o.confirm()
			o.kill()
		})
	} else {
		o.confirm()
		load.waitMore(30)
		o.waitSeen(load.newest())
		o.kill()
	}
	k.waitComplete()
	p := b.through()
	r := b.run()
	r.waitPhase(survey.Streaming)
	load.waitMore(100)
	r.crash(p) // with most of it unreported, or all
	b.waitFree()
	published, unconfirmed := o.seen()
	first := b.current().Seen()
	r = b.run()
	written := load.end()
	r.waitSeen(written[len(written)-1], load.newest())
	await.Until(t, "everything", func() bool { return len(missing(written, published, first, b.current().Seen())) == 0 })
	r.endClean()
	twice := 0
	for _, id := range published {
		if slices.Contains(first, id) {
			twice++
			if !slices.Contains(unconfirmed, id) {
				t.Errorf("%s was confirmed by the other program and sent once more", id)
			}
		}
	}
	if twice > len(unconfirmed) || inOrder && twice > 0 {
		t.Errorf("%d came twice, %d were not confirmed", twice, len(unconfirmed))
	}
	if !inOrder && len(unconfirmed) == 0 {
		t.Error("it was killed with everything confirmed: nothing was tried")
	}
}

// The other program has confirmed up to the end of a commit, at which the next one begins: that one
// is sent, and no other. A server of its own: what other tests write comes between.
func TestTakeoverBetweenCommitsThatAreAdjacent(t *testing.T) {
	b := alone(t)
	o := b.newTool()
	k, _ := b.takePassed(o)
	second, between := b.adjacentUnread(o)
	o.confirmTo(between)
	o.kill()
	if s := k.waitComplete(); s.Confirmed != between {
		t.Errorf("it goes on from %s, want %s", s.Confirmed, between)
	}
	b.insert("after")
	r := b.run()
	r.waitSeen("after")
	r.endClean()
	if seen := b.current().Seen(); !slices.Equal(seen, []string{second, "after"}) {
		t.Errorf("sent: %v, want %s first", seen, second)
	}
}

// adjacentUnread is adjacent without a relay, whose slot nobody has read: it returns the second id
// and the position between the two commits.
func (b *bench) adjacentUnread(o *otherTool) (second string, between pglogrepl.LSN) {
	b.t.Helper()
	for try := range 200 {
		second = fmt.Sprintf("second %d", try)
		b.commitBoth(fmt.Sprintf("first %d", try), second)
		o.waitSeen(second)
		rows, err := b.conn.Query(await.Context(b.t), `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, 100000,
			'proto_version', '1', 'publication_names', 'p') WHERE get_byte(data, 0) = ascii('C')`, b.cfg.Slot)
		if err != nil {
			b.t.Fatal(err)
		}
		commits, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil || len(commits) < 2 {
			b.t.Fatalf("%d commits, %v", len(commits), err)
		}
		last := commits[len(commits)-2:] // type, flags, position, end
		between = pglogrepl.LSN(binary.BigEndian.Uint64(last[0][10:]))
		if uint64(between) == binary.BigEndian.Uint64(last[1][2:]) {
			return second, between
		}
	}
	b.t.Fatal("no two commits were adjacent")
	return "", 0
}

// missing are the ids that are in none of the lists.
func missing(ids []string, lists ...[]string) []string {
	have := map[string]bool{}
	for _, list := range lists {
		for _, id := range list {
			have[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return have[id] })
}

// load writes rows from several connections.
type load struct {
	b       *bench
	mu      sync.Mutex
	written []string // committed, in the order in which that was known
	still   sync.RWMutex
	stop    chan struct{}
	writers sync.WaitGroup
}

func (b *bench) load(writers int) *load {
	b.t.Helper()
	l := &load{b: b, stop: make(chan struct{})}
	for w := range writers {
		conn := b.connect()
		l.writers.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				case <-pace.C:
				}
				l.still.RLock()
				ids := make([]string, 1+rand.N(3))
				tx, err := conn.Begin(context.Background())
				for i := range ids {
					ids[i] = fmt.Sprintf("%d-%d-%d", w, n, i)
					if err == nil {
						_, err = tx.Exec(context.Background(), `INSERT INTO outbox VALUES ($1, '{}')`, ids[i])
					}
				}
				if err == nil {
					err = tx.Commit(context.Background())
				}
				if err == nil {
					l.mu.Lock()
					l.written = append(l.written, ids...)
					l.mu.Unlock()
				}
				l.still.RUnlock() // a pause knows everything that is written
				if err != nil {
					b.t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	b.t.Cleanup(func() { l.end() })
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.written)
}

func (l *load) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.written)
}

func (l *load) newest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written[len(l.written)-1]
}

func (l *load) waitMore(n int) {
	l.b.t.Helper()
	want := l.count() + n
	await.Until(l.b.t, "rows to be written", func() bool { return l.count() >= want })
}

// pause does something while nothing is being written.
func (l *load) pause(do func()) {
	l.still.Lock()
	defer l.still.Unlock()
	do()
}

func (l *load) end() []string {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.writers.Wait()
	return l.written
}

// A run of the command may end anywhere; the next one goes on from there.
func TestTakeoverAfterACrashAtEachStep(t *testing.T) {
	takeoverAfterACrash(t, map[string]func(b *bench, o *otherTool){
		"before its slot": func(b *bench, o *otherTool) { b.begun(o) },
		"while its slot is being made": func(b *bench, o *otherTool) {
			p := b.through()
			tx, _ := b.openInsert("open")
			k := b.take(o, asLongAsItTakes)
			b.waitCreating()
			p.Cut()
			k.stop()
			_, _ = k.wait()
			if err := p.Restore(); err != nil {
				b.t.Fatal(err)
			}
			if err := tx.Commit(await.Context(b.t)); err != nil {
				b.t.Fatal(err)
			}
			b.waitNoWalsenderOf(b.cfg.Slot)
		},
	})
}

// begun does the first steps of a run, and no more.
func (b *bench) begun(o *otherTool) {
	b.t.Helper()
	ctx := await.Context(b.t)
	m := b.takeover(&b.cfg, o)
	var err error
	if b.cfg.Tables, err = publication.FindTables(ctx, m.Pool, &b.cfg, true); err != nil {
		b.t.Fatal(err)
	}
	if err := m.Mark(ctx); err != nil {
		b.t.Fatal(err)
	}
}

func takeoverAfterACrash(t *testing.T, cases map[string]func(b *bench, o *otherTool)) {
	t.Parallel()
	for name, crash := range cases {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			o := b.newTool()
			b.insert("theirs")
			crash(b, o)
			replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "takeover")
			k, _ := b.takePassed(o)
			b.insert("twice")
			o.waitSeen("twice")
			o.kill()
			k.waitComplete()
			b.goesOn("after")
			if seen := b.current().Seen(); !slices.Equal(seen, []string{"twice", "after"}) {
				t.Errorf("sent: %v", seen)
			}
			if all, _ := o.seen(); !slices.Contains(all, "theirs") {
				t.Errorf("published: %v", all)
			}
		})
	}
}

// waitNoWalsenderOf returns when nobody holds the slot, or it is not there.
func (b *bench) waitNoWalsenderOf(slot string) {
	b.t.Helper()
	await.Until(b.t, "nobody to hold the slot", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1 AND active`, slot) == "0"
	})
}

// What the other program did with its slot is what its slot said last: should it be gone, or given
// up by the server, before it has passed our start, rows may be in no slot.
func TestTakeoverFromASlotThatIsGone(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	_, err := b.now(o)
	replicationtest.WantStop(t, err, event.ExitOperator, "takeover")
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)
	b.insert("ours")
	_, err = b.now(o)
	stop := replicationtest.WantStop(t, err, event.ExitOperator, "takeover")
	if !strings.Contains(stop.What, "no longer exists") {
		t.Error(stop)
	}
	b.runFix(stop)
	b.goesOn("after")
	if seen := b.current().Seen(); !slices.Equal(seen, []string{"ours", "after"}) {
		t.Errorf("sent: %v", seen)
	}
}

// The position of a takeover belongs to one incarnation of the slot: a slot that is adopted later,
// perhaps on another server with a lower WAL position, must not skip up to it.
func TestTakenPositionIsForgottenByAnAdoption(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	k, _ := b.takePassed(o)
	o.kill()
	k.waitComplete()
	b.exec(`UPDATE cdc_relay.slots SET took_until = 'FFFFFFFF/0', state = 'adopt'`)
	b.goesOn("after")
}

// A run that was killed while its slot was being created: its backend goes on waiting for a
// transaction that is open, and the slot is there and has no position yet. Nothing has passed that;
// a run that took it for one would lose what is committed until it has.
func TestTakeoverWhoseSlotIsStillBeingCreated(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	open, _ := b.openInsert("open")
	first := b.take(o, asLongAsItTakes)
	b.waitCreating() // a cancellation before that would be for nothing
	first.stop()
	if _, err := first.wait(); err == nil {
		t.Fatal("it was stopped, and says nothing of it")
	}
	b.waitNoWalsender()
	ours := &otherTool{b: b, slot: b.cfg.Slot}
	if ours.exists() {
		t.Fatal("its slot is still there")
	}
	backend, left := b.connect(), make(chan error, 1)
	go func() {
		_, err := backend.Exec(await.Context(t), `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, b.cfg.Slot)
		left <- err
	}()
	await.Until(t, "the slot without a position", ours.exists)
	b.insert("between")
	stop := replicationtest.WantStop(t, func() error { _, err := b.now(o); return err }(), event.ExitOperator, "takeover")
	if !strings.Contains(stop.What, "is being created") {
		t.Error(stop)
	}
	k := b.take(o, asLongAsItTakes)
	if err := open.Commit(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	if s := k.waitTold("that the other slot is below", overlapping); s.Start != b.confirmedFlush() {
		t.Errorf("%+v", s)
	}
}
