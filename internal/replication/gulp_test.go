package replication

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// A gulp changes when bytes are read, never which.
func TestGulpPassesEveryByte(t *testing.T) {
	want := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	for name, from := range map[string]io.Reader{
		"whole":       bytes.NewReader(want),
		"halves":      iotest.HalfReader(bytes.NewReader(want)),
		"with an EOF": iotest.DataErrReader(bytes.NewReader(want)),
	} {
		got, err := io.ReadAll(&gulp{from: from})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	got, err := io.ReadAll(&gulp{from: io.MultiReader(bytes.NewReader(want), iotest.ErrReader(io.ErrClosedPipe))})
	if err != io.ErrClosedPipe || len(got) != len(want) { //nolint:errorlint // it must come through as it is
		t.Errorf("%d bytes before %v", len(got), err)
	}
}

// drip gives out size bytes at a time, one every interval.
type drip struct {
	size     int
	interval time.Duration
}

func (s drip) Read(p []byte) (int, error) {
	<-time.After(s.interval)
	return min(s.size, len(p)), nil
}

// pauses is how long 1,000 reads took beyond the source's own time, divided by gulpPause.
func pauses(s drip) int {
	g := &gulp{from: s}
	start := time.Now()
	buf := make([]byte, 256<<10)
	for range 1000 {
		if n, err := g.Read(buf); n == 0 || err != nil {
			panic(err)
		}
	}
	return int((time.Since(start) - 1000*s.interval) / gulpPause)
}

func TestGulpPausesOnlyWhenRowsComeFastAndSmall(t *testing.T) {
	for name, c := range map[string]struct {
		from   drip
		paused bool
	}{
		"a row now and then":  {drip{300, 10 * time.Millisecond}, false},
		"5,000 rows a second": {drip{300, 200 * time.Microsecond}, false},
		"60,000 small rows":   {drip{1200, 20 * time.Microsecond}, true},
		"large reads":         {drip{100 << 10, 500 * time.Microsecond}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			if n := pauses(c.from); c.paused != (n > 0) {
				t.Errorf("%s: paused %d times in 1,000 reads", name, n)
			}
		})
	}
}
