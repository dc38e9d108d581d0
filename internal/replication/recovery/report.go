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
	// rows that are deferred or dead letters already, and stay so; of a dry run at most
	Held int64 `json:"already_held"`
	// deferred events and dead letters of the server that this one replaces, which are this one's
	// now
	Moved int64 `json:"moved_rows"`
	// rows that the condition leaves out: they are not known to be sent, as before
	LeftOut int64  `json:"left_out"`
	Order   string `json:"order"`
	// of the copied rows, those that do not say which transaction wrote them
	Unknown int64 `json:"rows_without_transaction"`
	// the gap in the WAL, as far as it is known: no row is chosen by it
	FromLSN  string `json:"from_lsn,omitempty"`
	UntilLSN string `json:"until_lsn,omitempty"`
	// The slot is in use again: newer events of a key were sent before these.
	NewerSent bool `json:"newer_sent_before"`
	// what nothing can bring back, in sentences
	Lost []string `json:"cannot_be_recovered"`
	// what is taken for something else than it was, or not read, in sentences
	Named []string `json:"named"`
	// accepted gaps that are left to the next run
	OpenGaps int64 `json:"open_gaps"`

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
	rep.Unknown, rep.OpenGaps, rep.NewerSent = f.unknown, t.later, t.gap != 0
	if t.fromLSN != 0 {
		rep.FromLSN = t.fromLSN.String()
	}
	if t.untilLSN != 0 {
		rep.UntilLSN = t.untilLSN.String()
	}
	rep.Held, rep.LeftOut = min(f.held, f.rows), f.leftOut
	rep.Lost = []string{}
	if rep.backfill || r.resend != nil {
		return
	}
	rep.Lost = append(rep.Lost, "rows that were deleted from "+r.c.TableNames()+" before now: nothing shows how many")
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

func (rep *Report) action() string {
	if rep.backfill {
		return "backfill"
	}
	return "recover"
}

// audit is the result as the audit has it: no names from rows.
func (rep *Report) audit() string {
	return fmt.Sprintf("%d rows copied into the retry table, %d were held, %d were left out by a condition; order: %s",
		rep.Recovered, rep.Held, rep.LeftOut, rep.Order)
}
