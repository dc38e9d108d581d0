package session

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// A coalesced read changes when bytes are read, never which.
func TestCoalescePassesEveryByte(t *testing.T) {
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
		got, err := io.ReadAll(&Coalescer{from: from})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	got, err := io.ReadAll(&Coalescer{from: io.MultiReader(bytes.NewReader(want), iotest.ErrReader(io.ErrClosedPipe))})
	if err != io.ErrClosedPipe || len(got) != len(want) { //nolint:errorlint // it must come through as it is
		t.Errorf("%d bytes before %v", len(got), err)
	}
}

// In a transaction of which many rows have come, the pause grows with it up to a bound, and what
// comes from a backlog waits for a part of its lateness. Else there is none, nor before what has
// come.
func TestCoalescePauses(t *testing.T) {
	for _, c := range []struct {
		coalescer *Coalescer
		enough    int
		want      time.Duration
	}{
		{&Coalescer{lastSmall: true}, 0, 0},
		{&Coalescer{lastSmall: true, frames: coalesceFrames - 1}, 0, 0},
		{&Coalescer{lastSmall: true, frames: coalesceFrames}, coalesceEnough, coalesceFrames * coalesceFramePause},
		{&Coalescer{lastSmall: true, frames: 1_000_000}, coalesceEnough, coalesceMaxPause},
		{&Coalescer{frames: 1_000_000}, 0, 0},
		{&Coalescer{lastSmall: true, lateness: coalesceLate - 1}, 0, 0},
		{&Coalescer{lastSmall: true, lateness: coalesceLate}, coalesceLateEnough, coalesceLate / coalesceLatePart},
		{&Coalescer{lateness: coalesceLate, frames: 100}, coalesceLateEnough, coalesceLate / coalesceLatePart},
		{&Coalescer{lateness: time.Hour}, coalesceLateEnough, coalesceLateMaxPause},
		{&Coalescer{lastSmall: true, lateness: time.Hour, bytesThere: 1}, 0, 0},
		{&Coalescer{lastSmall: true, lateness: -time.Hour}, 0, 0}, // the server's clock went back
	} {
		if enough, pause := c.coalescer.nextPause(); enough != c.enough || pause != c.want {
			t.Errorf("%+v: %d bytes or %s, want %d or %s", c.coalescer, enough, pause, c.enough, c.want)
		}
	}
}

// Without a socket to wait on, as at a Unix one, a read that brought much is followed by another at
// once, and 32 KiB of small ones are.
func TestCoalescePausesWithoutASocket(t *testing.T) {
	for read, pauses := range map[int]time.Duration{8 << 10: 4 * coalesceMaxPause, 64 << 10: coalesceMaxPause} {
		synctest.Test(t, func(t *testing.T) {
			began, c := time.Now(), &Coalescer{from: bytes.NewReader(make([]byte, 128<<10)), lastSmall: true, lateness: time.Hour}
			for range 128 << 10 / read {
				if _, err := io.ReadFull(c, make([]byte, read)); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took != pauses {
				t.Errorf("reads of %d bytes: pauses of %s, want %s", read, took, pauses)
			}
		})
	}
}
