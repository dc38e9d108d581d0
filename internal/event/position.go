// The position of an event: it identifies the event, is the same at every delivery, and orders
// events by commit.

package event

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
)

// Position identifies an event permanently: the LSN of its transaction's commit record (Begin's
// final_lsn) and the index of its frame among all I, U, D and M frames of that transaction as the
// server sent them. It is the same at every delivery, and it increases in commit order. It is not
// comparable after dump and restore.
type Position struct {
	Commit pglogrepl.LSN
	Index  uint32
}

// String is the text of the message header cdc_position: 16 hex digits, a dash, 8 decimal digits.
func (p Position) String() string {
	return string(p.Append(make([]byte, 0, 25)))
}

// Append appends the text of String to b.
func (p Position) Append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[(uint64(p.Commit)>>shift)&15])
	}
	b = append(b, '-')
	for pow := uint32(10_000_000); pow > p.Index && pow > 1; pow /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, uint64(p.Index), 10)
}

// Less reports whether p comes before q in commit order.
func (p Position) Less(q Position) bool { return p.Compare(q) < 0 }

// Compare is negative when p comes before q in commit order, positive when it comes after.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Commit, q.Commit), cmp.Compare(p.Index, q.Index))
}

// ParsePosition reads what String wrote.
func ParsePosition(s string) (Position, error) {
	if len(s) < 25 || s[16] != '-' {
		return Position{}, fmt.Errorf("parse position %q: want 16 hex digits, a dash and 8 decimal digits", s)
	}
	commit, err := strconv.ParseUint(s[:16], 16, 64)
	if err != nil {
		return Position{}, fmt.Errorf("parse position %q: %w", s, err)
	}
	index, err := strconv.ParseUint(s[17:], 10, 32)
	if err != nil {
		return Position{}, fmt.Errorf("parse position %q: %w", s, err)
	}
	return Position{Commit: pglogrepl.LSN(commit), Index: uint32(index)}, nil
}
