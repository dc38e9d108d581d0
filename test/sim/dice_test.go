package sim

import (
	"context"
	"time"
)

// dice draw what happens. Each actor (a lane, a writer, a reader of one life of a process) has dice
// of its own, so that what it draws depends on what it did before and not on who ran first: a seed
// that failed fails again in nearly all runs.
type dice struct{ state uint64 }

func newDice(seed uint64, of ...int) *dice {
	d := &dice{state: seed}
	for _, n := range of {
		d.state ^= uint64(n+1) * 0x9e3779b97f4a7c15
		d.next()
	}
	return d
}

// next is splitmix64.
func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n is below k.
func (d *dice) n(k int) int { return int(d.next() % uint64(k)) }

// in is true so many times of a thousand.
func (d *dice) in(permille int) bool { return d.n(1000) < permille }

func (d *dice) float() float64 { return float64(d.next()>>11) / (1 << 53) }

// upTo is a duration up to most.
func (d *dice) upTo(most time.Duration) time.Duration {
	return time.Duration(d.float() * float64(most))
}

// about is mostly below twice that duration, and seldom ten times as much.
func (d *dice) about(usual time.Duration) time.Duration {
	u := d.float()
	at := time.Duration(2 * u * u * float64(usual))
	if d.in(20) {
		at *= 10
	}
	return at + 1
}

func pick[T any](d *dice, of ...T) T { return of[d.n(len(of))] }

// slept waits in the bubble's time; false when ctx is done before.
func slept(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
