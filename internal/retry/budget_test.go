package retry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/order"
)

// lanesWant defers so many rows of each lane, each of its own key, and has the lanes want them.
func (f *fixture) lanesWant(rows int, lanes ...int) {
	var specs []string
	for i := range rows {
		for _, lane := range lanes {
			id := fmt.Sprintf("%d-%05d", lane, i)
			specs = append(specs, fmt.Sprintf("%s %s-%d x/a", id, id, lane))
		}
	}
	f.deferRows(nil, specs...)
	f.pass(10 * time.Second)
	wants := map[int][]order.Want{}
	for _, spec := range specs {
		lane, w := f.wantOf(strings.Fields(spec)[1] + "@x")
		wants[lane] = append(wants[lane], w)
	}
	for _, lane := range lanes {
		f.table.Read(lane, wants[lane], nil)
	}
}

// inLane is how many rows a lane has.
func (f *fixture) inLane(lane int) (n int) {
	for _, id := range f.line.ids() {
		if strings.HasPrefix(id, fmt.Sprint(lane, "-")) {
			n++
		}
	}
	return n
}

// deliver has the lanes deliver all they have, except those that stand still.
func (f *fixture) deliver(still ...int) {
	for _, id := range f.line.ids() {
		keeps := false
		for _, lane := range still {
			keeps = keeps || strings.HasPrefix(id, fmt.Sprint(lane, "-"))
		}
		if !keeps {
			f.line.finish("delivered", id)
		}
	}
}

// The rows that are with the lanes have a budget; what has no room is read when there is some.
func TestBudget(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.lanesWant(6000, 1, 2)
		f.pass(10 * time.Second)
		if n := f.line.has(); n > budgetRows || n < budgetRows/2 || f.table.Snapshot().InFlight != n {
			t.Errorf("%d rows with the lanes, %d in flight", n, f.table.Snapshot().InFlight)
		}
		for range 20 {
			f.deliver()
			f.pass(time.Second)
		}
		f.equal("rows", f.rows(), "")
		if n := f.table.Snapshot().InFlight; n != 0 || f.line.most > budgetRows {
			t.Errorf("%d in flight, %d at the most", n, f.line.most)
		}
	})
}

// Lanes that stand still leave room for the others, whether they have many rows or large ones, and
// for probes.
func TestLaneThatStandsStill(t *testing.T) {
	for _, size := range []int{0, 1 << 20} {
		t.Run(fmt.Sprint("size=", size), func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.start()
				rows := 4000
				if size > 0 {
					rows = 20
					f.sizes = map[string]int{}
					for i := range rows {
						f.sizes[fmt.Sprintf("1-%05d", i)], f.sizes[fmt.Sprintf("2-%05d", i)] = size, size
					}
				}
				f.lanesWant(rows, 1, 2)
				f.pass(time.Second)
				f.lanesWant(50, 3)
				for range 20 {
					f.pass(time.Second)
					f.deliver(1, 2)
				}
				if n := strings.Count(" "+f.rows(), " 3-"); n > 0 {
					t.Errorf("%d rows of the other lane are left; lane 1 has %d, lane 2 has %d", n, f.inLane(1), f.inLane(2))
				}
				f.deferRows(nil, "probe k1 x/a")
				f.settle()
				lane, w := f.wantOf("k1@x")
				w.Probe = true
				f.line.said()
				f.table.Read(lane, []order.Want{w}, nil)
				f.settle()
				f.said("found k1@x probe")
			})
		})
	}
}

// A long group comes in few large reads, each behind the last.
func TestReadsAreLarge(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		var specs []string
		for i := range 5000 {
			specs = append(specs, fmt.Sprintf("%04d k x/a", i))
		}
		f.deferRows(nil, specs...)
		f.pass(time.Second)
		f.store.done("")
		f.read("k@x")
		f.settle()
		if n := f.line.has(); n < 2000 {
			t.Errorf("%d rows in one read", n)
		}
		if n := f.store.count("read"); n != 1 {
			t.Errorf("%d reads", n)
		}
	})
}
