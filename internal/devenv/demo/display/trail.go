// A trail of values, drawn as bars.

package display

import "strings"

// Trail is the course of one number, one value each half second, oldest first; the zero value is
// empty.
type Trail []float64

const trailLength = 41 // cells: 20 s, and what is left of 80 columns

// Last is the newest value; 0 when there is none.
func (t Trail) Last() float64 {
	if len(t) == 0 {
		return 0
	}
	return t[len(t)-1]
}

// Add returns the trail with one more value. What was there is not changed, because it may be on
// its way to the screen.
func (t Trail) Add(value float64) Trail {
	if len(t) >= trailLength {
		t = t[len(t)-trailLength+1:]
	}
	return append(t[:len(t):len(t)], value)
}

// bars draws each value as a cell; zero is a dot. A full cell is the highest value, and at least
// full: small numbers are drawn small.
func (t Trail) bars(full float64) string {
	highest := full
	for _, value := range t {
		highest = max(highest, value)
	}
	steps := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, value := range t {
		if value <= 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune(steps[min(len(steps)-1, int(value/highest*float64(len(steps))))])
	}
	return b.String()
}
