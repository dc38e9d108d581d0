// The budget of one event: what may be made of its row, and with how much work.

package event

import "errors"

// Budget bounds what is made of one event, whatever is in its row (I5): the bytes of its key,
// headers, schemas and message, and the work that they take. What a row makes may grow with the
// square of its size: names within names, members that others lack. An event that would cost more
// is refused before the bytes are there. So each byte is charged before it is made.
//
// Both depend on the row alone: an event is refused at every delivery, or at none.
type Budget struct{ bytes, work int } // what is left; below 0: it was used up

// A budget is a constant, which has room for the schemas of any table, and a multiple of the row.
// 6 bytes are what JSON makes of one that it escapes.
const (
	baseBytes, bytesEach = 1 << 20, 8
	baseWork, workEach   = 1 << 18, 4
)

// A small budget is what many events may have at the same time. Hardly an event needs more.
const (
	smallBytes = 64 << 10
	smallWork  = 4 << 10
)

// Why an event is over its budget. A dead letter has it without its figures, so there are none.
var (
	ErrBytes = errors.New("what is made of it is over its budget of bytes: a mebibyte, and eight for each byte of the row")
	ErrWork  = errors.New("what it takes to make it is over its budget of steps: a quarter of a million, and four for each byte of the row")
)

// Budget is the whole budget of an event.
func (e *Event) Budget() Budget { return NewBudget(e.Size()) }

// NewBudget is the budget of a row of so many bytes.
func NewBudget(size int) Budget {
	return Budget{bytes: baseBytes + bytesEach*size, work: baseWork + workEach*size}
}

// Small is the budget as far as many events may have it at the same time.
func (b Budget) Small() Budget { return Budget{min(b.bytes, smallBytes), min(b.work, smallWork)} }

// Make charges n bytes that are about to be made; false: they must not be.
func (b *Budget) Make(n int) bool {
	b.bytes -= n
	return b.bytes >= 0
}

// Work charges n steps, each of which takes about as long as one member or comparison of names;
// false: they must not be taken.
func (b *Budget) Work(n int) bool {
	b.work -= n
	return b.work >= 0
}

// UseUp charges more bytes than are left.
func (b *Budget) UseUp() { b.bytes = min(b.bytes, -1) }

// Left is how many bytes may be made.
func (b *Budget) Left() int { return max(b.bytes, 0) }

// Err says which budget was used up; nil: none.
func (b *Budget) Err() error {
	switch {
	case b.bytes < 0:
		return ErrBytes
	case b.work < 0:
		return ErrWork
	}
	return nil
}
