// Resend: an operator's choice of rows, whether they were sent or not, while a relay runs.
//
// The leader copies them into the retry table, all in one transaction, which raises no epoch: it
// has the fence of the leader's own. The copies have ordering groups of their own (event.Resent),
// so newer events of a key do not wait for them, and positions that are none of the WAL: whoever
// remembers positions of a key must not take a repeat for the newest. The header cdc_replay says
// that an event is a repeat.

package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/tablerows"
)

// resend is the job of a run that sends rows again.
type resend struct {
	dlq.Choice
	job   int64 // 0: the rows are only counted
	route event.Route
	rate  float64 // rows per second; 0: as fast as they go
	who   string
	epoch int64
	// what had ended then, text of a pg_snapshot; the slot is past all of it
	past        string
	incarnation int64
}

// knowsSent reports whether the choice goes by the sent set.
func (s *resend) knowsSent() bool { return s.Unsent || s.Gap != 0 }

// CountResend checks a choice, and counts its rows. It changes nothing. Of a dry run the order may
// be unknown. A row that waits already, or is an open dead letter, is counted: the job leaves it
// out.
func CountResend(ctx context.Context, c source.Config, pool *pgxpool.Pool, r *dlq.Resend, scope event.Scope, dryRun bool) (Report, error) {
	run := newResend(&c, pool, &resend{Choice: r.Choice}, r.Condition)
	run.opt.Scope, run.opt.DryRun = scope, dryRun
	err := run.prepareResend(ctx)
	if err == nil {
		err = run.count(ctx, "", nil)
	}
	return run.report, source.OrFatal(&c, err)
}

func newResend(c *source.Config, pool *pgxpool.Pool, r *resend, condition string) *run {
	own := *c
	return &run{
		c: &own, pool: pool, resend: r, began: time.Now().UTC().Truncate(time.Microsecond),
		opt: Options{OrderBy: r.OrderBy, Unordered: r.Unordered, Where: condition},
	}
}

// prepareResend finds the tables and checks the choice.
func (r *run) prepareResend(ctx context.Context) error {
	if name := r.resend.Table; name != "" {
		var one []decode.Table
		for _, t := range r.c.Tables {
			if t.String() == name {
				one = append(one, t)
			}
		}
		if one == nil {
			return usage(fmt.Sprintf("table %s is not in source.tables", name), "name one of "+r.c.TableNames())
		}
		r.c.Tables = one
	}
	if len(r.c.Tables) == 0 {
		return usage("source.tables names no table: only rows of a table can be sent again, logical messages are nowhere but in the WAL", "")
	}
	rec, err := slot.ReadRecord(ctx, r.pool, r.c.Slot)
	switch {
	case err != nil:
		return err
	case rec == nil:
		return usage(fmt.Sprintf("no relay has used slot %q in this database: nothing was sent", r.c.Slot), "start the relay")
	}
	r.id.SystemID, r.was, r.restored = rec.SystemID, rec.Sends, rec.Restored
	if s := r.resend; s.Gap != 0 {
		if s.Unsent || s.Table != "" || s.IDs != nil || s.Key != nil || s.Aggregate != nil || !s.From.IsZero() || !s.To.IsZero() || r.opt.Where != "" {
			return usage("a gap is sent again as a whole: nothing else may choose of its rows", "leave out --table and the like")
		}
		if err := r.findNamedGap(ctx); err != nil {
			return err
		}
	}
	if err := r.prepare(ctx, false); err != nil {
		return err
	}
	if r.resend.knowsSent() && r.resend.Table == "" {
		if err := r.checkTables(ctx); err != nil {
			return err
		}
	}
	return nil
}

// findNamedGap finds the gap that the choice names.
func (r *run) findNamedGap(ctx context.Context) error {
	t := &r.task
	t.gap = r.resend.Gap
	var until *int64
	err := r.pool.QueryRow(ctx, `SELECT until_xid::text::bigint FROM cdc_relay.gap WHERE id = $1 AND slot = $2 AND system_id = $3 AND recovered_at IS NULL`, t.gap, r.c.Slot, r.id.SystemID).Scan(&until)
	switch {
	case source.IsNoRows(err):
		if err = dlq.New(r.pool, r.c.Slot).NoGap(ctx, t.gap); err == nil {
			return usage(fmt.Sprintf("gap %d is of another system", t.gap), "close it by your word: `cdc-relay resend --gap N --none --reason TEXT`")
		}
		return usage(err.Error(), "")
	case err != nil:
		return fmt.Errorf("read cdc_relay.gap: %w", err)
	case until == nil:
		return usage(fmt.Sprintf("gap %d has no end yet: no relay has used the slot since it was accepted", t.gap), "start the relay once")
	}
	t.until = *until
	return r.checkEnded(ctx)
}

// chosenSQL is the condition that a row of alias t is one of the choice, beside the operator's.
func (r *run) chosenSQL(t *table) string {
	list := []string{"true"}
	s := r.resend
	if len(s.IDs) > 0 {
		var ids []string
		for _, id := range s.IDs {
			ids = append(ids, t.named.id.IsSQL(string(id)))
		}
		list = append(list, "("+strings.Join(ids, " OR ")+")")
	}
	if s.Key != nil {
		list = append(list, t.named.key.IsSQL(string(s.Key)))
	}
	if s.Aggregate != nil {
		list = append(list, t.named.aggregate.IsSQL(string(s.Aggregate)))
	}
	// A row whose time is not known is chosen, so that it is counted: see checkKnown.
	if !s.From.IsZero() {
		list = append(list, "("+t.named.time+" >= "+quoteTime(s.From)+") IS NOT FALSE")
	}
	if !s.To.IsZero() {
		list = append(list, "("+t.named.time+" < "+quoteTime(s.To)+") IS NOT FALSE")
	}
	if s.Unsent && t.tx != "" { // of others nothing is known: see nameLeftOut
		list = append(list, t.tx+" IS NOT NULL")
	}
	// Else the slot may still send it. A number that is not given here yet is of a restored row.
	// Rows of a gap have their own bound (unsentSQL), and none may be left out: it is closed.
	if s.past != "" && t.tx != "" && s.Gap == 0 {
		list = append(list, fmt.Sprintf(`coalesce(pg_visible_in_snapshot((%s)::text::xid8, %s::pg_snapshot) OR %[1]s >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint, %[3]t)`,
			t.tx, source.QuoteText(s.past), !s.Unsent))
	}
	return strings.Join(list, " AND ")
}

func quoteTime(t time.Time) string {
	return source.QuoteText(t.UTC().Format("2006-01-02T15:04:05.999999Z")) + "::timestamptz"
}

// nameColumns finds the columns by which the choice names rows of a table.
func (r *run) nameColumns(ctx context.Context, t *table) (err error) {
	s, m := r.resend, &t.Mapping
	for _, part := range []struct {
		flag  string
		given bool
		names decode.Names
		to    *tablerows.Part
	}{
		{"id", len(s.IDs) > 0, m.ID, &t.named.id},
		{"key", s.Key != nil, m.Key, &t.named.key},
		{"aggregate", s.Aggregate != nil, m.Aggregate, &t.named.aggregate},
	} {
		if !part.given {
			continue
		}
		if *part.to, err = tablerows.FindPart(ctx, r.pool, t.Table.Table, part.names.Any); err != nil {
			if own := (*tablerows.NotOwn)(nil); errors.As(err, &own) {
				return usage(fmt.Sprintf("--%s: %v", part.flag, own), "name rows by --where")
			}
			return err
		}
		if len(*part.to) == 0 {
			return usage(fmt.Sprintf("--%s: table %s has no column for it", part.flag, t), "name rows by --where, or the other tables by --table")
		}
		values := [][]byte{s.Key}
		switch part.flag {
		case "id":
			values = s.IDs
		case "aggregate":
			values = [][]byte{s.Aggregate}
		}
		for _, v := range values { // a text that is no value of the column's type
			if err := part.to.Check(ctx, r.pool, string(v)); err != nil {
				return usage(fmt.Sprintf("--%s is %q: table %s: %s", part.flag, v, t, source.OneLine(err)), "")
			}
		}
	}
	if s.From.IsZero() && s.To.IsZero() {
		return nil
	}
	t.named.time, err = r.timeSQL(ctx, t)
	return err
}

// timeSQL is the SQL of the event's time, as the stream has it: that of the timestamp columns, else
// that of the commit. Where neither is known it is that of the column that looks like it, and the
// report says so; NULL: there is none.
func (r *run) timeSQL(ctx context.Context, t *table) (string, error) {
	names := t.Mapping.Timestamp.Any
	if t.Mapping.Untimed {
		names = nil
	}
	list, _, err := r.columnTimes(ctx, t, names)
	if err != nil {
		return "", err
	}
	var tracked bool
	if err := r.pool.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool`).Scan(&tracked); err != nil {
		return "", fmt.Errorf("read track_commit_timestamp: %w", err)
	}
	if tracked && t.tx != "" {
		list = append(list, t.commitSQL())
	}
	own, err := r.ownTime(ctx, t)
	if err != nil {
		return "", err
	}
	if own != "" && !slices.Contains(names, own) {
		like, zone, err := r.columnTimes(ctx, t, []string{own})
		if err != nil {
			return "", err
		}
		list = append(list, like...)
		note := fmt.Sprintf("table %s: --from and --to go by column %q", t, own)
		if !zone {
			note += ", which has no time zone and is taken for UTC"
		}
		if len(list) > len(like) {
			note += ", where no other time is known"
		}
		r.report.Named = append(r.report.Named, note)
	}
	if len(list) == 0 {
		return "NULL::timestamptz", nil
	}
	return "coalesce(" + strings.Join(list, ", ") + ")", nil
}

// columnTimes are the times that columns of a table give; nothing: it has none of them. As to the
// decoder a time without zone is UTC, and infinity is no time. zone: all of them have one.
func (r *run) columnTimes(ctx context.Context, t *table, names []string) (list []string, zone bool, err error) {
	part, err := tablerows.FindPart(ctx, r.pool, t.Table.Table, names)
	if err != nil || len(part) == 0 {
		return nil, true, err
	}
	zone = true
	for _, c := range part {
		column := "t." + source.QuoteName(c.Name)
		if c.Kind != "pg_catalog.timestamptz" {
			zone = false
			column = "(" + column + " AT TIME ZONE 'UTC')"
		}
		list = append(list, column)
	}
	first := "coalesce(" + strings.Join(list, ", ") + ")"
	return []string{"CASE WHEN isfinite(" + first + ") THEN " + first + " END"}, zone, nil
}

// copyResend copies the rows, and notes in the job that it has. It returns what was found wrong
// with the choice as a usage error, and *dlq fences as they are.
func (r *run) copyResend(ctx context.Context) error {
	s := r.resend
	if err := r.prepareResend(ctx); err != nil {
		return err
	}
	at := func(context.Context, pgx.Tx) (int64, positions, error) {
		return s.incarnation, positions{base: pglogrepl.LSN(s.job) * 8}, nil
	}
	return r.copyRows(ctx, "", at, func(ctx context.Context, tx pgx.Tx) error {
		var ours, open bool
		err := tx.QueryRow(ctx, dlq.WriteFence+`,
			job AS (UPDATE cdc_relay.bulk b SET state = 'sending', system_id = $7, asked = $4, skipped = $5, filter = '{}', condition = NULL FROM fence
				WHERE b.job = $3 AND b.state = 'asking' RETURNING b.job),
			gap AS (UPDATE cdc_relay.gap g SET recovered_at = now(), job = job.job FROM job WHERE g.id = $6),
			noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) SELECT $1, $7, $8, 'resend', 0, $9, 'job ' || job.job || ': ' || $10 FROM job)
			SELECT EXISTS (SELECT FROM fence), EXISTS (SELECT FROM job)`,
			r.c.Slot, s.epoch, s.job, r.report.Recovered, r.report.Held, s.Gap, r.id.SystemID, s.who, r.opt.Reason, r.report.audit()).Scan(&ours, &open)
		switch {
		case err != nil:
			return fmt.Errorf("note the copied rows: %w", err)
		case !ours:
			return dlq.Fenced(r.c.Slot, s.epoch)
		case !open:
			return errCancelled
		}
		return nil
	})
}

// due is when the row of a rank is sent.
func (s *resend) due(began time.Time, rank int64) time.Time {
	if s.rate <= 0 || rank == 0 {
		return time.Time{}
	}
	return began.Add(time.Duration(float64(rank) / s.rate * float64(time.Second)))
}
