package inflight

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestChunksBoundMemory: whatever is placed and dropped in whatever order, no two events share
// bytes, what is charged is the memory in use, and handed-out plus idle chunks stay within the
// limit, one oversize event apart.
func TestChunksBoundMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int64{1000, 256 << 10, 1 << 20}).Draw(t, "limit")
		p := newChunks(limit)
		arenas := make([]Arena, rapid.IntRange(1, 40).Draw(t, "lanes"))
		type placed struct {
			c    *chunk
			buf  []byte
			mark byte
		}
		var live []placed
		var mark byte
		t.Repeat(map[string]func(*rapid.T){
			"place": func(t *rapid.T) {
				a := &arenas[rapid.IntRange(0, len(arenas)-1).Draw(t, "lane")]
				size := rapid.SampledFrom([]int{1, 10, 512, 3000, 4096, 15_000, 17_000, 70_000, int(limit), int(limit) + 1}).Draw(t, "size")
				before := p.charged
				c, buf, ok := p.placeBytes(a, size)
				if !ok {
					if size <= int(limit) && before+int64(size) <= limit/2 {
						t.Fatalf("no room for %d bytes with %d of %d charged", size, before, limit)
					}
					return
				}
				if len(buf) != size || cap(buf) != size {
					t.Fatalf("room of %d, capacity %d, for %d bytes", len(buf), cap(buf), size)
				}
				mark++
				for i := range buf {
					buf[i] = mark
				}
				live = append(live, placed{c, buf, mark})
			},
			"drop": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("nothing placed")
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				x := live[i]
				live = slices.Delete(live, i, i+1)
				if slices.ContainsFunc(x.buf, func(b byte) bool { return b != x.mark }) {
					t.Fatal("bytes of a live event were overwritten")
				}
				p.settleEvent(x.c)
			},
			"": func(t *rapid.T) {
				var held, over int64
				seen := make(map[*chunk]bool)
				for _, x := range live {
					if size := int64(len(x.c.buf)); !seen[x.c] && size <= limit {
						held += size
					} else if !seen[x.c] {
						over++
					}
					seen[x.c] = true
				}
				var lanes int64
				for i := range arenas {
					lanes += arenas[i].charged
				}
				if p.charged != held || lanes != held || over > 1 {
					t.Fatalf("charged %d, by lanes %d, held %d, %d oversize", p.charged, lanes, held, over)
				}
				var idle int64
				for _, c := range p.free {
					for ; c != nil; c = c.next {
						idle += int64(len(c.buf))
					}
				}
				if p.idle != idle || p.charged+p.idle > limit {
					t.Fatalf("charged %d, idle %d (counted %d), limit %d", p.charged, p.idle, idle, limit)
				}
			},
		})
	})
}

// TestQuietLanesStaySmall: an event in each of a thousand lanes costs a thousand of the smallest
// chunks, not of the largest.
func TestQuietLanesStaySmall(t *testing.T) {
	p := newChunks(16 << 20)
	arenas := make([]Arena, 1000)
	for i := range arenas {
		if _, _, ok := p.placeBytes(&arenas[i], 200); !ok {
			t.Fatalf("lane %d has no room", i)
		}
	}
	if want := int64(1000 * minChunk); p.charged != want {
		t.Fatalf("%d bytes charged, want %d", p.charged, want)
	}
}

// TestBusyLaneTakesLargeChunks: the waste at the ends of chunks stays small for a lane with much in
// flight.
func TestBusyLaneTakesLargeChunks(t *testing.T) {
	p := newChunks(16 << 20)
	var a Arena
	n := 0
	for ; ; n++ {
		if _, _, ok := p.placeBytes(&a, 700); !ok {
			break
		}
	}
	if used := n * 700; used < 15<<20 {
		t.Fatalf("the in-flight budget is full with %d bytes of events", used)
	}
}

// TestStragglerIsChargedForItsChunk: events that settle late keep their chunks, and the budget
// counts that.
func TestStragglerIsChargedForItsChunk(t *testing.T) {
	p := newChunks(4 << 20)
	var a Arena
	stragglers := 0
	for i := range 1_000_000 {
		c, _, ok := p.placeBytes(&a, 500)
		if !ok {
			break
		}
		if i%100 == 0 {
			stragglers++
			continue
		}
		p.settleEvent(c)
	}
	if stragglers < 60 || p.charged+p.idle > 4<<20 {
		t.Fatalf("%d stragglers, %d bytes charged", stragglers, p.charged)
	}
}
