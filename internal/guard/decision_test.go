package guard

import (
	"testing"
	"time"
)

// play has a decision look once a second at what a function says of each second, and returns when
// its state changed.
func play(seconds int, what func(second int, s state) input) (changes []change) {
	d := decision{patience: 40 * time.Second, tryAfter: minWait}
	began := time.Unix(1000, 0)
	for n := range seconds {
		in := what(n, d.state)
		in.now = began.Add(time.Duration(n) * time.Second)
		before := d.state
		if !d.asksDisk(&in) { // the guard knows nothing then
			in.disk = diskState{}
		}
		if d.step(&in); d.state != before {
			changes = append(changes, change{n, d.state})
		}
	}
	return changes
}

type change struct {
	second int
	to     state
}

var (
	room   = diskState{tooMuch: true, hasRoom: true, hasMore: true}
	little = diskState{hasRoom: true, hasMore: true} // WAL
)

func TestDecision(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds int
		what    func(n int, s state) input
		want    []change
	}{
		{"the broker is away", 12, func(int, state) input {
			return input{waiting: true, disk: room}
		}, []change{{5, on}}},
		{"nothing waits for it", 100, func(int, state) input {
			return input{disk: room}
		}, nil},
		{"the slot keeps little", 100, func(int, state) input {
			return input{waiting: true, disk: little}
		}, nil},
		{"the slot keeps much, events are confirmed", 100, func(n int, _ state) input {
			return input{waiting: true, confirmed: int64(n / 4), disk: room}
		}, nil},
		// a sink that says it is up has the time to blame a destination
		{"it is up and confirms nothing", 100, func(_ int, s state) input {
			return input{up: s == off, waiting: true, disk: room}
		}, []change{{40, on}, {70, trying}, {76, on}}},
		{"it comes back", 30, func(n int, s state) input {
			return input{up: n >= 20, waiting: true, confirmed: int64(max(0, n-21)), disk: room}
		}, []change{{5, on}, {20, trying}, {22, off}}},
		// each try in vain doubles the wait: what is deferred meanwhile is more than what waits
		{"it is reached and takes nothing", 60, func(n int, _ state) input {
			return input{up: n > 5, waiting: true, disk: room}
		}, []change{{5, on}, {6, trying}, {12, on}, {14, trying}, {20, on}, {24, trying}, {30, on}, {38, trying}, {44, on}}},
		{"a sink that connects for a message only", 50, func(n int, _ state) input {
			return input{waiting: true, confirmed: int64(max(0, n-36)), disk: room}
		}, []change{{5, on}, {35, trying}, {37, off}}},
		{"there is no room, then there is", 40, func(n int, _ state) input {
			return input{waiting: true, disk: diskState{tooMuch: true, hasRoom: n > 12, hasMore: n > 20}}
		}, []change{{5, full}, {21, on}}},
		{"the room ends", 40, func(n int, _ state) input {
			return input{waiting: true, confirmed: int64(max(0, n-20)), disk: diskState{tooMuch: true, hasRoom: n < 10, hasMore: n < 10}}
		}, []change{{5, on}, {10, full}, {21, off}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := play(c.seconds, c.what)
			if len(got) != len(c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Fatalf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}
