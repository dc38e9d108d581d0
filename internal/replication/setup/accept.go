// An operator's decision to go on after exit 3, with what was found.

package setup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Accept records that an operator accepts a finding, by its ID: the relay goes on at its next
// start, or by itself when it was started with --hold-on-fatal. It refuses with event.ExitUsage,
// and changes nothing, when another finding is there by now, or none, and while somebody reads the
// slot.
//
// The decision, the audit and the interval that may be missing are one transaction, which compares
// the record with what the ID was computed from. So an ID accepts what its reader has seen, and
// nothing that came later.
func Accept(ctx context.Context, c source.Config, opt AcceptOptions) (AcceptResult, error) {
	if err := cmp.Or(c.Validate(), opt.Validate()); err != nil {
		return AcceptResult{}, err
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return AcceptResult{}, err
	}
	defer source.ClosePool(pool)
	// Connect would create the schema, perhaps in another database than was meant.
	switch version, err := schema.Version(ctx, pool); {
	case err != nil:
		return AcceptResult{}, source.OrFatal(&c, err)
	case version == 0:
		return AcceptResult{}, usageStop("no relay has used this database: nothing was found here that could be accepted", "correct source.url")
	}
	stream, id, err := slot.Connect(ctx, pool, &c)
	if err != nil {
		return AcceptResult{}, source.OrFatal(&c, err)
	}
	defer source.CloseStream(stream)
	a := &acceptance{c: &c, pool: pool, opt: opt, result: AcceptResult{Finding: opt.ID}}
	err = slot.WithCreationLock(ctx, pool, &c, func(ctx context.Context) error {
		if opt.Rows.givenFlags() == 0 {
			if err := a.awaitFree(ctx); err != nil {
				return err
			}
		}
		if a.found, err = slot.ExamineState(ctx, pool, &c, id); err != nil {
			return err
		}
		if opt.Rows.givenFlags() > 0 {
			return a.acceptRows(ctx)
		}
		return a.acceptSlot(ctx)
	})
	return a.result, err
}

// holderTimeout is how long the server may still show the slot as active after the relay's process
// has ended.
const holderTimeout = 5 * time.Second

// awaitFree waits a moment while a relay reads the slot, so that accept can follow its end at once.
func (a *acceptance) awaitFree(ctx context.Context) error {
	for give := time.Now().Add(holderTimeout); time.Now().Before(give); {
		view, err := slot.ReadView(ctx, a.pool, a.c.Slot)
		if err != nil || view == nil || !view.Active() || !view.ReadByRelay() || !source.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
	return nil
}

// AcceptOptions are an operator's decision.
type AcceptOptions struct {
	ID     string // of the finding, as the message has it
	Reason string // why, for the audit

	NewSlot bool // drop the slot, with what waits in it, and begin with a new one

	// of a server that is not the one the slot was read from; one of them, then
	SameData bool // it goes on in that one's place: what was deferred there is sent here
	Copy     bool // it is a copy: what was deferred there is sent there alone
	// with SameData on another system: whether what was committed on the one before was delivered,
	// DeliveredAll or DeliveredUnknown
	Delivered string

	Rows Rows // what rows or messages are that the relay stops at
}

// The answers of AcceptOptions.Delivered.
const (
	DeliveredAll     = "all"     // but for what is deferred or a dead letter
	DeliveredUnknown = "unknown" // what is not known to be sent is recover's
)

// Rows say what rows or messages are. A table is NAME@OID, as the message has it.
type Rows struct {
	Skip         string // a table whose rows are not events
	SkipMessages string // a prefix whose messages are not events
	Events       string // a table whose rows are those of a configured one
	Of           string // of which one, when there are several
}

// Validate returns a Stop with exit code event.ExitUsage for options that exclude each other.
func (o AcceptOptions) Validate() error {
	switch {
	case o.SameData && o.Copy:
		return usageStop("--same-data and --copy exclude each other", "")
	case o.Delivered != "" && !o.SameData:
		return usageStop("--delivered needs --same-data", "")
	case o.Delivered != "" && o.Delivered != DeliveredAll && o.Delivered != DeliveredUnknown:
		return usageStop("--delivered is all or unknown", "")
	case o.Rows.givenFlags() > 1:
		return usageStop("--skip-rows, --skip-messages and --events exclude each other", "")
	case o.Rows.givenFlags() == 1 && (o.NewSlot || o.SameData || o.Copy):
		return usageStop("--new-slot, --same-data and --copy are about the slot, and not about rows that the relay stops at", "")
	case o.Rows.Of != "" && o.Rows.Events == "":
		return usageStop("--of needs --events", "")
	}
	_, err := o.Rows.parseRows()
	return err
}

// givenFlags is how many of the flags about rows are set; Of is none of them.
func (r Rows) givenFlags() (n int) {
	for _, s := range []string{r.Skip, r.SkipMessages, r.Events} {
		if s != "" {
			n++
		}
	}
	return n
}

// parseRows parses the table or prefix that the finding is about.
func (r Rows) parseRows() (event.Rows, error) {
	if r.SkipMessages != "" || r.givenFlags() == 0 {
		return event.Rows{Name: r.SkipMessages}, nil
	}
	text := r.Skip + r.Events
	at := strings.LastIndexByte(text, '@')
	oid, err := strconv.ParseUint(text[at+1:], 10, 32)
	if at < 1 || err != nil || oid == 0 {
		return event.Rows{}, usageStop(fmt.Sprintf("%q is not a table with its OID, such as public.audit@16423", text), "copy the command from the message")
	}
	return event.Rows{Name: text[:at], OID: uint32(oid)}, nil
}

// AcceptResult is what was done.
type AcceptResult struct {
	Finding string `json:"finding"`
	Done    string `json:"done"` // one sentence
	Moved   int64  `json:"moved_rows"`
	// of what may be missing; 0: there is none
	Gap int64 `json:"gap,omitempty"`
	// what sends the rows of the gap once the relay was started; "": there is no gap
	Next string `json:"next,omitempty"`
	// rows of the outbox tables that recover leaves out from now on, by the operator's word
	Recorded int64 `json:"left_out_rows"`
}

// usageStop is the Stop (exit 2) for options that do not fit: nothing is changed.
func usageStop(what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitUsage, Reason: "usage", What: what, Fix: fix}
}

// quotedID is an ID that somebody typed, quoted and cut to 40 characters.
func quotedID(id string) string { return fmt.Sprintf("%.40q", id) }

// acceptance is one Accept.
type acceptance struct {
	c      *source.Config
	pool   *pgxpool.Pool
	opt    AcceptOptions
	found  *slot.FoundState
	result AcceptResult
}

// isOtherServer reports whether the record is of another server, or of another timeline of it.
func (a *acceptance) isOtherServer() bool { return a.found.Record.IsOfOtherServer(a.found.Server) }

// onOtherSystem reports whether the server has another system identifier than the one that the slot
// was read from. A promoted standby and a restored backup have the same.
func (a *acceptance) onOtherSystem() bool {
	return a.isOtherServer() && a.found.Record.SystemID != a.found.Server.SystemID
}

// writeAudit records who accepted what; who is the session's user.
func (a *acceptance) writeAudit(ctx context.Context, tx pgx.Tx, what string) error {
	how := ""
	for flag, set := range map[string]bool{"new slot": a.opt.NewSlot, "same data": a.opt.SameData, "copy": a.opt.Copy} {
		if set {
			how += " (" + flag + ")"
		}
	}
	switch a.opt.Delivered {
	case DeliveredAll:
		how += fmt.Sprintf(" (all was delivered: recover leaves out %d rows)", a.result.Recorded)
	case DeliveredUnknown:
		how += " (what was delivered is unknown)"
	}
	_, err := slot.WriteAudit(ctx, tx, a.c.Slot, a.found.Server.SystemID, "accept", a.opt.Reason, auditResult(a.opt.ID, what+how))
	return err
}

// acceptedBefore is when and by whom the ID was accepted, with a result that begins with what; "":
// it was not.
func (a *acceptance) acceptedBefore(ctx context.Context, what string) (string, error) {
	var at, who string
	err := a.pool.QueryRow(ctx, `SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), who FROM cdc_relay.audit
		WHERE slot = $1 AND action = 'accept' AND starts_with(result, $2) ORDER BY seq DESC LIMIT 1`, a.c.Slot, auditResult(a.opt.ID, what)).Scan(&at, &who)
	switch {
	case source.IsNoRows(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read cdc_relay.audit: %w", err)
	}
	return "at " + at + " by " + who, nil
}

// auditResult is the audit's result for an accepted finding.
func auditResult(id, what string) string { return "finding " + id + ": " + what }

// acceptSlot accepts the slot as it is, or with NewSlot a new one, if the ID is that of what is
// found now and the options fit.
func (a *acceptance) acceptSlot(ctx context.Context) error {
	stop, err := a.found.NextStop(ctx, a.pool, a.c)
	if err != nil {
		return err
	}
	if a.opt.ID != a.found.ID {
		other, err := a.systemOfID(ctx)
		switch {
		case err != nil:
			return err
		case other != "":
			return a.acceptSystem(ctx, other)
		}
		return a.refuseID(ctx, stop)
	}
	if stop != nil && stop.Finding == "" {
		return usageStop("this cannot be accepted as it is: "+stop.What, stop.Fix)
	}
	if err := a.checkSlot(ctx); err != nil {
		return err
	}
	reason := "slot_moved" // as a relay found it that ran: the database alone does not show it
	if stop != nil {
		reason = stop.Reason
	}
	what := "the database does not show what the relay found"
	if stop != nil {
		what = stop.What
	}
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error { return a.writeDecision(ctx, tx, reason, what) })
	if err == nil {
		a.c.Log.Debug("accepted", zap.String("finding", a.opt.ID), zap.String("reason", reason))
	}
	return err
}

// checkSlot returns why the options do not fit what was found.
func (a *acceptance) checkSlot(ctx context.Context) error {
	rec, view := a.found.Record, a.found.View
	switch {
	case view != nil && view.Active():
		return usageStop(fmt.Sprintf("slot %q is active for %s", a.c.Slot, view.HolderName()), "stop it first")
	case a.isOtherServer() && !a.opt.SameData && !a.opt.Copy:
		return usageStop("this server is not the one that the slot was read from, and only you know which it is",
			"add --same-data if it goes on with the same data, or --copy if it is a copy and the other one goes on")
	case !a.isOtherServer() && (a.opt.SameData || a.opt.Copy):
		return usageStop("--same-data and --copy are for another server than the one that the slot was read from, and this is that one", "leave them out")
	case a.opt.SameData && a.onOtherSystem() && rec.Used && a.opt.Delivered == "":
		return usageStop("this is another system than the one that the slot was read from, and only you know whether all that was committed there was delivered",
			"add --delivered all if it was, but for deferred events and dead letters: no gap is kept, and recover leaves out the rows that came from there; "+
				"or --delivered unknown: a gap is kept, and recover sends every row that is not known to be sent, also those that were")
	case a.opt.Delivered != "" && !a.onOtherSystem():
		return usageStop("--delivered is for another system than the one that the slot was read from: on this one it is known what was sent", "leave it out")
	case a.opt.NewSlot && view == nil:
		return usageStop(fmt.Sprintf("slot %q does not exist, so the next start makes a new one anyway", a.c.Slot), "leave --new-slot out")
	case a.opt.NewSlot && rec == nil:
		return usageStop(fmt.Sprintf("slot %q is no relay's: it is not dropped", a.c.Slot), source.DropSlotHint(a.c.Slot))
	case !a.opt.NewSlot && view != nil:
		why, err := slot.CannotBeReadOn(ctx, a.pool, a.c, a.found.Server, rec, view)
		if err != nil {
			return err
		}
		if why != "" {
			return usageStop(fmt.Sprintf("slot %q cannot be read on: %s", a.c.Slot, why),
				"add --new-slot, which drops it with what waits in it; or cdc-relay recover, which also sends what is still in the outbox table")
		}
	}
	return nil
}

// refuseID refuses an ID that is not the one of what is found now: it was accepted before, or
// something changed. The same command again is not refused until a start has used the decision.
func (a *acceptance) refuseID(ctx context.Context, now *event.Stop) error {
	before, err := a.acceptedBefore(ctx, "")
	if err != nil {
		return err
	}
	if rec := a.found.Record; before != "" && now == nil && rec != nil && rec.State == slot.StateAdopt {
		a.result.Done = "nothing: it was accepted " + before
		return nil
	}
	what := fmt.Sprintf("finding %s is not open: it was never found here, or has changed since", quotedID(a.opt.ID))
	if before != "" {
		what = fmt.Sprintf("finding %s is not open: it was accepted %s", quotedID(a.opt.ID), before)
	}
	if now == nil {
		return usageStop(what+", and nothing is found now about the slot", "if it is about rows, copy the whole command from the message, with its flags")
	}
	return usageStop(what+"; what is found now: "+now.What, now.Fix)
}

// acceptRows writes the decision to the slot's record. A relay that leads reads it at its next
// check, or when it comes to such a row.
func (a *acceptance) acceptRows(ctx context.Context) error {
	of, err := a.opt.Rows.parseRows()
	if err != nil {
		return err
	}
	rec := a.found.Record
	if rec == nil || rec.State != slot.StateReady && rec.State != slot.StateAdopt {
		return usageStop(fmt.Sprintf("slot %q is not in use, so there are no rows to decide about", a.c.Slot), "run `cdc-relay check`")
	}
	if a.opt.ID != a.found.RowsID(of) {
		return usageStop(fmt.Sprintf("finding %s is not open: it is not about these rows, or the slot was accepted since", quotedID(a.opt.ID)), "start the relay again, and copy the command from its message")
	}
	next, done, err := a.decideRows(ctx, of)
	if err != nil {
		return err
	}
	if next.Equal(rec.Sends) {
		before, err := a.acceptedBefore(ctx, done)
		a.result.Done = "nothing: it was decided before"
		if before != "" {
			a.result.Done = "nothing: it was accepted " + before
		}
		return err
	}
	a.result.Done = done
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE cdc_relay.slots SET sends = $2 WHERE slot = $1 AND sends::text = $3 AND state = $5 AND incarnation = $4`,
			a.c.Slot, next, rec.SendsText, rec.Incarnation, rec.State)
		if err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return usageStop(fmt.Sprintf("the record of slot %q was changed meanwhile", a.c.Slot), "run this again")
		}
		return a.writeAudit(ctx, tx, done)
	})
}

// decideRows returns what is to be remembered after the decision about rows, and a sentence that
// says what that means.
func (a *acceptance) decideRows(ctx context.Context, of event.Rows) (next schema.Sends, done string, err error) {
	was := a.found.Record.Sends
	switch {
	case a.opt.Rows.SkipMessages != "":
		return was.SkipMessages(of.Name), fmt.Sprintf("messages with prefix %s are not relayed", of.Name), nil
	case a.opt.Rows.Skip != "":
		done = fmt.Sprintf("rows of table %s (OID %d) are not relayed", of.Name, of.OID)
		if slices.Contains(was.Foreign, of.OID) {
			return was, done, nil
		}
		return was.SkipTable(of.OID), done, nil
	}
	scope, err := was.FindScope(ctx, a.pool, a.c, of.OID, of.Name)
	if err != nil {
		return was, "", err
	}
	t, err := a.tableOfRows(scope.Root)
	if err != nil {
		return was, "", err
	}
	oids := []uint32{of.OID}
	if scope.Root != nil { // its other partitions have rows of the same time
		var leaves []uint32
		if err := a.pool.QueryRow(ctx, `SELECT array(SELECT relid::oid FROM pg_partition_tree($1::oid::regclass) WHERE isleaf)`, scope.Root.OID).Scan(&leaves); err != nil {
			return was, "", fmt.Errorf("read the partitions of %s: %w", scope.Root, err)
		}
		oids = append(oids, leaves...)
	}
	return was.AdoptTables(*t, oids...), fmt.Sprintf("rows of table %s (OID %d) are events of %s", of.Name, of.OID, t), nil
}

// tableOfRows is the configured table whose events the rows are: root, of which theirs is a
// partition now, or the one that was named, or the only one.
func (a *acceptance) tableOfRows(root *decode.Table) (*decode.Table, error) {
	if root != nil && (a.opt.Rows.Of == "" || a.opt.Rows.Of == root.String()) {
		return root, nil
	}
	var names []string
	for i := range a.c.Tables {
		t := &a.c.Tables[i]
		names = append(names, t.String())
		if a.opt.Rows.Of == t.String() || a.opt.Rows.Of == "" && len(a.c.Tables) == 1 {
			return t, nil
		}
	}
	return nil, usageStop("--events does not say of which table", "add --of "+strings.Join(names, " or --of "))
}
