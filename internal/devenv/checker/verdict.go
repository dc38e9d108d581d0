// The verdict of a check: what was counted, and what is wrong.

package checker

import (
	"errors"
	"fmt"
	"strings"
)

// Verdict is what Check found. The lists hold ids, each at most once.
type Verdict struct {
	Committed  int // rows in the database
	Delivered  int // of these, how many arrived
	Duplicates int // deliveries of an id that had arrived before, without those of Redelivered
	// of these, the ones the broker sent again by itself, for want of an acknowledgement
	Redelivered int

	Lost    []string // committed, never arrived, and in no table
	Phantom []string // arrived or put aside, rolled back or unknown to the database
	// arrived for the first time after a later one of their ordering group (CommitOrder: of any
	// key)
	OutOfOrder []string
	Altered    []string // key or number in the message are not those of the row
	// cdc_position differs between deliveries and tables, or is not in commit order of the key
	Moved                []string
	FlushAheadOfDelivery []string // see Mark
	InTwo                []string // in both tables, or twice in one
	Unasked              []string // came as the replay of a dead letter that there was not

	Deferred  []string // in the retry table
	Dead      []string // open dead letters
	Replayed  []string // dead letters that were replayed
	Discarded []string // dead letters that were discarded or purged
	// of these, what arrived (not as a replay) and is in a table as well; they count as duplicates
	Both []string

	MaxDuplicates, MaxDeferred, MaxDead int // of the History
}

// findings are the rules of a verdict that have no exception, and the rows that break them.
func (v Verdict) findings() []finding {
	all := []finding{
		{"lost", v.Lost},
		{"phantom (never committed)", v.Phantom},
		{"out of order", v.OutOfOrder},
		{"altered", v.Altered},
		{"position moved", v.Moved},
		{"reported before delivery", v.FlushAheadOfDelivery},
		{"in the retry table twice", v.InTwo},
		{"replayed unasked", v.Unasked},
	}
	if v.MaxDeferred >= 0 && len(v.Deferred) > v.MaxDeferred {
		all = append(all, finding{fmt.Sprintf("still deferred, at most %d allowed", v.MaxDeferred), v.Deferred})
	}
	if v.MaxDead >= 0 && len(v.Dead) > v.MaxDead {
		all = append(all, finding{fmt.Sprintf("dead letters, at most %d allowed", v.MaxDead), v.Dead})
	}
	return all
}

type finding struct {
	name string
	ids  []string
}

// Err is nil when every rule holds.
func (v Verdict) Err() error {
	var errs []error
	for _, f := range v.findings() {
		if len(f.ids) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d (%s)", f.name, len(f.ids), FirstOf(f.ids)))
		}
	}
	if v.MaxDuplicates >= 0 && v.Duplicates+len(v.Both) > v.MaxDuplicates {
		err := fmt.Errorf("duplicates: %d, at most %d are allowed", v.Duplicates, v.MaxDuplicates)
		if len(v.Both) > 0 {
			err = fmt.Errorf("%w; at the broker and in a table: %d (%s)", err, len(v.Both), FirstOf(v.Both))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// String is the verdict in a few lines.
func (v Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "committed %d, delivered %d, duplicates %d", v.Committed, v.Delivered, v.Duplicates)
	if v.MaxDuplicates >= 0 {
		fmt.Fprintf(&b, " (at most %d allowed)", v.MaxDuplicates)
	}
	fmt.Fprintf(&b, ", lost %d, out of order %d", len(v.Lost), len(v.OutOfOrder))
	if v.Redelivered > 0 {
		fmt.Fprintf(&b, ", sent again by the broker %d", v.Redelivered)
	}
	for _, part := range []finding{
		{"deferred", v.Deferred}, {"dead", v.Dead}, {"replayed", v.Replayed}, {"discarded", v.Discarded}, {"both delivered and put aside", v.Both},
	} {
		if len(part.ids) > 0 {
			fmt.Fprintf(&b, ", %s %d", part.name, len(part.ids))
		}
	}
	if err := v.Err(); err != nil {
		fmt.Fprintf(&b, "\n%v", err)
	}
	return b.String()
}

// FirstOf names at most ten ids.
func FirstOf(ids []string) string {
	const most = 10
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + ", …"
	}
	return strings.Join(ids, ", ")
}
