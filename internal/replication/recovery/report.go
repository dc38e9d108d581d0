// What a run has done, or would do.

package recovery

import (
	"fmt"
	"strings"
)

// Report is the result of a run. Of a dry run the numbers are those that it would have, at most.
type Report struct {
	Slot   string `json:"slot"`
	DryRun bool   `json:"dry_run"`
	// rows that are copied into the retry table
	Recovered int64 `json:"recovered"`
	// of these, at most, were delivered before: what was settled since the relay last noted up to
	// which transaction everything is. They have the same ids.
	Repeated int64 `json:"possibly_repeated_at_most"`
	// rows that are deferred or dead letters already, and stay so; of a dry run at most
	Held int64 `json:"already_held"`
	// deferred events and dead letters of the server that this one replaces, which are this one's
	// now
	Moved int64 `json:"moved_rows"`
	// rows of the gap that the condition leaves out: no later recover finds them
	LeftOut int64  `json:"left_out"`
	Order   string `json:"order"`
	// The gap. Transactions with a lower id than FromXID are settled; null: that is not known, and
	// rows of any age are copied.
	FromXID   *string `json:"from_xid"`
	UntilXID  *string `json:"until_xid,omitempty"`
	Unbounded string  `json:"unbounded,omitempty"` // why it is not known
	FromLSN   string  `json:"from_lsn,omitempty"`
	UntilLSN  string  `json:"until_lsn,omitempty"`
	// The slot is in use again: newer events of a key were sent before these.
	NewerSent bool `json:"newer_sent_before"`
	// what nothing can bring back, in sentences
	Lost []string `json:"cannot_be_recovered"`
	// accepted gaps that are left to the next run
	OpenGaps int64 `json:"open_gaps"`

	settled  string // below this transaction everything is settled or copied
	counted  int64
	backfill bool
}

// fill fills in what is known once the rows are counted.
func (r *run) fill(f facts) {
	rep := &r.report
	rep.counted, rep.Recovered, rep.Order = f.rows, f.rows, string(r.order)
	if r.order == byNamed {
		rep.Order = fmt.Sprintf("column %q", r.opt.OrderBy)
	}
	t := &r.task
	if t.from != "" {
		rep.FromXID = &t.from
	}
	if t.until != "" {
		rep.UntilXID = &t.until
	}
	rep.Unbounded, rep.OpenGaps, rep.NewerSent = t.unbounded, t.later, t.gap != 0
	if t.fromLSN != 0 {
		rep.FromLSN = t.fromLSN.String()
	}
	if t.untilLSN != 0 {
		rep.UntilLSN = t.untilLSN.String()
	}
	rep.Held, rep.LeftOut = min(f.held, f.rows), f.leftOut
	rep.Lost = []string{}
	if rep.backfill {
		return
	}
	rep.Lost = append(rep.Lost, "rows that were deleted from "+r.c.TableNames()+" before now: nothing shows how many")
	if t.gap != 0 {
		rep.Lost = append(rep.Lost, "rows of the gap that were updated since the slot is in use again: they cannot be told from newer ones")
	}
	if prefixes := r.prefixes(); len(prefixes) > 0 {
		rep.Lost = append(rep.Lost, "logical messages with prefix "+strings.Join(prefixes, ", ")+": only the WAL had them")
	}
}

func (r *run) prefixes() []string {
	if r.c.Messages.Prefix == "" {
		return nil
	}
	return []string{r.c.Messages.Prefix}
}

// finish fills in what only a run that has copied knows.
func (rep *Report) finish() {
	if !rep.backfill {
		rep.Repeated = rep.Recovered
	}
}

func (rep *Report) action() string {
	if rep.backfill {
		return "backfill"
	}
	return "recover"
}

// audit is the result as the audit has it: no names from rows.
func (rep *Report) audit() string {
	from := "any"
	if rep.FromXID != nil {
		from = *rep.FromXID
	}
	return fmt.Sprintf("%d rows copied into the retry table, %d were held, %d were left out by a condition; order: %s; from transaction %s",
		rep.Recovered, rep.Held, rep.LeftOut, rep.Order, from)
}
