package batch

import "testing"

func TestLimit(t *testing.T) {
	var l SizeLimit
	for _, step := range []struct {
		do   func()
		next int
	}{
		{func() {}, ordinaryBatch},
		{func() { l.Stored(500) }, ordinaryBatch},
		{func() { l.TooLarge(100_000) }, 50_000},
		{func() { l.Stored(50_000) }, 50_000},
		{func() { l.Stored(60_000) }, 60_000},   // one record
		{func() { l.TooLarge(80_000) }, 60_000}, // what was stored is tried first
		{func() { l.TooLarge(59_000) }, 29_500}, // the setting was lowered
		{func() { l.TooLarge(29_000) }, 14_500},
		{func() { l.Stored(200_000) }, ordinaryBatch}, // one record: the setting was raised
		{func() { l.TooLarge(8_000_000) }, ordinaryBatch},
	} {
		if step.do(); l.Next() != step.next {
			t.Errorf("%+v: the next batch has up to %d bytes, want %d", l, l.Next(), step.next)
		}
	}
}
