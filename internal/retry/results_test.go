package retry

import (
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// handed is a fixture whose lanes have these rows.
func (f *fixture) handed(specs ...string) {
	f.start()
	f.deferRows(nil, specs...)
	f.settle()
	asked := map[string]bool{}
	for _, spec := range specs {
		part := strings.Fields(spec)
		exchange, _, _ := strings.Cut(part[2], "/")
		if group := part[1] + "@" + exchange; !asked[group] {
			asked[group] = true
			f.read(group)
		}
	}
	f.settle()
	f.line.said()
	f.store.done("")
}

// Results are committed together, and their lanes are told afterwards. What is returned is not
// written.
func TestResultsAreCommitted(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.handed("1 k x/a", "2 j x/a", "3 i x/a", "4 h x/a")
		f.store.fails("apply", errLost, false)
		f.line.finish("delivered", "1")
		f.line.finish("dead", "2")
		f.line.finish("returned", "4")
		f.settle()
		f.said("")
		f.line.finish("backoff", "3")
		f.store.accept()
		f.pass(time.Second)
		f.equal("rows", f.rows(), "3 4")
		f.equal("dead letters", f.deadLetters(), "2:open")
		f.saidInAnyOrder("finished 1", "finished 2", "finished 3")
		if shot := f.table.Snapshot(); shot.InFlight != 0 {
			t.Errorf("%d rows in flight", shot.InFlight)
		}
	})
}

// Results of unknown outcome come before any other statement of the feeder: rows that were deleted
// would be read once more.
func TestUnknownResultsAreRepeatedFirst(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.handed("1 k x/a", "2 k x/a", "3 j x/a")
		lost := 0
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if !strings.HasPrefix(call, "apply delivered 1") || lost == 3 {
					return nil, false
				}
				lost++
				return errLost, lost == 1
			}
		})
		f.line.finish("delivered", "1")
		f.settle()
		f.line.finish("delivered", "3")
		f.ask(store.Retry, "2")
		f.read("k@x")
		f.walk("x")
		f.pass(10 * time.Second)
		var first []string
		for _, call := range strings.Split(f.store.done(""), ", ") {
			if !strings.HasPrefix(call, "defer") && len(first) < 4 {
				first = append(first, strings.Fields(call)[0])
			}
		}
		f.equal("statements", strings.Join(first, "+"), "apply+apply+apply+apply")
		f.equal("rows", f.rows(), "2")
	})
}

// A result that the database refuses stands alone in the end, and is tried for ever; the others are
// committed.
func TestRefusedResult(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.handed("1 k x/a", "2 j x/a", "3 i x/a", "4 h x/a", "5 g x/a")
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if strings.HasPrefix(call, "apply") && strings.Contains(call, " 2") {
					return &store.Refused{Err: errLost}, false
				}
				return nil, false
			}
		})
		f.line.finish("delivered", "1", "2", "3", "4", "5")
		f.pass(15 * time.Second)
		f.equal("rows", f.rows(), "2")
		f.saidInAnyOrder("finished 1", "finished 3", "finished 4", "finished 5")
		f.store.accept()
		f.pass(10 * time.Second)
		f.equal("rows", f.rows(), "")
		f.said("finished 2")
	})
}

// Each attempt is reported once, by its result.
func TestAttemptsAreTold(t *testing.T) {
	refused := func(kind store.ResultKind, class sink.Class) order.Result {
		return order.Result{
			Event:  &inflight.Event{Refusal: transient},
			Result: store.Result{Row: &store.Row{}, Kind: kind, Class: class, Reason: sink.Invalid},
		}
	}
	silent := func(kind store.ResultKind, reason sink.Reason) order.Result {
		return order.Result{Event: &inflight.Event{}, Result: store.Result{Row: &store.Row{}, Kind: kind, Reason: reason}}
	}
	for name, c := range map[string]struct {
		result order.Result
		want   map[string]int
	}{
		"confirmed":                      {silent(store.Delivered, ""), map[string]int{"retried": 1}},
		"refused for a while":            {refused(store.Backoff, sink.Transient), map[string]int{"retried": 1, "deferred": 1}},
		"attempts spent":                 {refused(store.Dead, sink.Transient), map[string]int{"retried": 1, "dead": 1, "exhausted": 1}},
		"too large now":                  {refused(store.Dead, sink.Permanent), map[string]int{"retried": 1, "dead": 1}},
		"too old, and not sent":          {silent(store.Dead, sink.Nacked), map[string]int{"dead": 1}},
		"returned, and not sent":         {order.Result{Event: &inflight.Event{}, Returned: true}, map[string]int{}},
		"returned, refused by its pause": {order.Result{Event: &inflight.Event{Refusal: itsRoute}, Returned: true}, map[string]int{"retried": 1}},
	} {
		got := map[string]int{}
		hook := func(name string) func(int) { return func(n int) { got[name] += n } }
		table := New(Config{Log: zap.NewNop(), Hooks: Hooks{
			Deferred: hook("deferred"), Dead: hook("dead"), Exhausted: hook("exhausted"), Retried: hook("retried"), Failed: hook("failed"),
		}})
		if c.result.Returned {
			table.feeder.takeResult(c.result)
		} else {
			table.feeder.count([]order.Result{c.result})
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: told %v, want %v", name, got, c.want)
		}
	}
}
