// Resend: an operator's choice of rows, whether they were sent or not, while a relay runs.
//
// The leader copies them into the retry table, all in one transaction, which raises no epoch: it
// has the fence of the leader's own. The copies have ordering groups of their own (event.Resent),
// so newer events of a key do not wait for them, and positions that no WAL has: whoever remembers
// positions of a key must not take a repeat for the newest. The header cdc_replay says that an
// event is a repeat.

package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// resendRun is the job of a run that sends rows again.
type resendRun struct {
	dlq.Choice
	job   int64       // the job's number; 0: the rows are only counted
	route event.Route // where the copies go; nil names: where the rows go
	rate  float64     // rows per second; 0: as fast as they go
	who   string      // who asked for it
	epoch int64       // of the leader's term
	// pastSnapshot is the text of a snapshot: the slot is past all transactions that had ended in
	// it. "": the rows are only counted.
	pastSnapshot string
	incarnation  int64 // of the slot
}

// knowsSent reports whether the sent set decides which rows are chosen.
func (s *resendRun) knowsSent() bool { return s.Unsent || s.Gap != 0 }

// CountResend checks a choice, and counts its rows. It changes nothing. Of a dry run the order may
// be unknown. A row that waits already, or is an open dead letter, is counted: the job leaves it
// out.
func CountResend(ctx context.Context, c source.Config, pool *pgxpool.Pool, r *dlq.Resend, scope event.Scope, dryRun bool) (Report, error) {
	run := newResend(&c, pool, &resendRun{Choice: r.Choice}, r.Condition)
	run.opt.Scope, run.opt.DryRun = scope, dryRun
	err := run.prepareResend(ctx)
	if err == nil {
		err = run.countRows(ctx, "", nil)
	}
	return run.report, source.OrFatal(&c, err)
}

func newResend(c *source.Config, pool *pgxpool.Pool, r *resendRun, condition string) *run {
	own := *c
	return &run{
		c: &own, pool: pool, resend: r, began: time.Now().UTC().Truncate(time.Microsecond),
		opt: RecoverOptions{OrderBy: r.OrderBy, OrderByBegin: r.OrderByBegin, Unordered: r.Unordered, Where: condition},
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
			return usageStop(fmt.Sprintf("table %s is not in source.tables", name), "name one of "+r.c.TableNames())
		}
		r.c.Tables = one
	}
	if len(r.c.Tables) == 0 {
		return usageStop("source.tables names no table: only rows of a table can be sent again, logical messages are nowhere but in the WAL", "")
	}
	rec, err := slot.ReadRecord(ctx, r.pool, r.c.Slot)
	switch {
	case err != nil:
		return err
	case rec == nil:
		return usageStop(fmt.Sprintf("no relay has used slot %q in this database: nothing was sent", r.c.Slot), "start the relay")
	}
	r.id.SystemID, r.remembered, r.restored = rec.SystemID, rec.Sends, rec.Restored
	if s := r.resend; s.Gap != 0 {
		if s.Unsent || s.Table != "" || s.IDs != nil || s.Key != nil || s.Aggregate != nil || !s.From.IsZero() || !s.To.IsZero() || r.opt.Where != "" {
			return usageStop("a gap is sent again as a whole: nothing else may choose of its rows", "leave out --table and the like")
		}
		if err := r.findNamedGap(ctx); err != nil {
			return err
		}
	}
	if err := r.prepareTables(ctx, false); err != nil {
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
		if err = dlq.New(r.pool, r.c.Slot).CheckGapIsOpen(ctx, t.gap); err == nil {
			return usageStop(fmt.Sprintf("gap %d is of another system", t.gap), "close it by your word: `cdc-relay resend --gap N --none --reason TEXT`")
		}
		return usageStop(err.Error(), "")
	case err != nil:
		return fmt.Errorf("read cdc_relay.gap: %w", err)
	case until == nil:
		return usageStop(fmt.Sprintf("gap %d has no end yet: no relay has used the slot since it was accepted", t.gap), "start the relay once")
	}
	t.until = *until
	return r.checkEnded(ctx)
}

// chosenSQL is the condition that a row of alias t is one of the choice, beside the operator's.
func (r *run) chosenSQL(t *outboxTable) string {
	list := []string{"true"}
	s := r.resend
	if len(s.IDs) > 0 {
		var ids []string
		for _, id := range s.IDs {
			ids = append(ids, t.resendBy.id.EqualsSQL(string(id)))
		}
		list = append(list, "("+strings.Join(ids, " OR ")+")")
	}
	if s.Key != nil {
		list = append(list, t.resendBy.key.EqualsSQL(string(s.Key)))
	}
	if s.Aggregate != nil {
		list = append(list, t.resendBy.aggregate.EqualsSQL(string(s.Aggregate)))
	}
	// A row whose time is not known is chosen, so that it is counted: see checkKnown.
	if !s.From.IsZero() {
		list = append(list, "("+t.resendBy.time+" >= "+quoteTime(s.From)+") IS NOT FALSE")
	}
	if !s.To.IsZero() {
		list = append(list, "("+t.resendBy.time+" < "+quoteTime(s.To)+") IS NOT FALSE")
	}
	if s.Unsent && t.tx != "" { // of others nothing is known: see nameLeftOut
		list = append(list, t.tx+" IS NOT NULL")
	}
	// Else the slot may still send it. A number that is not given here yet is of a restored row.
	// Rows of a gap have their own bound (unsentSQL), and none may be left out: it is closed.
	if s.pastSnapshot != "" && t.tx != "" && s.Gap == 0 {
		list = append(list, fmt.Sprintf(`coalesce(pg_visible_in_snapshot((%s)::text::xid8, %s::pg_snapshot) OR %[1]s >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint, %[3]t)`,
			t.tx, source.QuoteText(s.pastSnapshot), !s.Unsent))
	}
	return strings.Join(list, " AND ")
}

func quoteTime(t time.Time) string {
	return source.QuoteText(t.UTC().Format("2006-01-02T15:04:05.999999Z")) + "::timestamptz"
}

// nameColumns finds the columns by which the choice names rows of a table.
func (r *run) nameColumns(ctx context.Context, t *outboxTable) (err error) {
	s, m := r.resend, &t.Mapping
	for _, part := range []struct {
		flag  string
		given bool
		names decode.Names
		to    *Part
	}{
		{"id", len(s.IDs) > 0, m.ID, &t.resendBy.id},
		{"key", s.Key != nil, m.Key, &t.resendBy.key},
		{"aggregate", s.Aggregate != nil, m.Aggregate, &t.resendBy.aggregate},
	} {
		if !part.given {
			continue
		}
		if *part.to, err = FindPart(ctx, r.pool, t.Table.Table, part.names.Any); err != nil {
			if own := (*ForeignTypeError)(nil); errors.As(err, &own) {
				return usageStop(fmt.Sprintf("--%s: %v", part.flag, own), "name rows by --where")
			}
			return err
		}
		if len(*part.to) == 0 {
			return usageStop(fmt.Sprintf("--%s: table %s has no column for it", part.flag, t), "name rows by --where, or the other tables by --table")
		}
		values := [][]byte{s.Key}
		switch part.flag {
		case "id":
			values = s.IDs
		case "aggregate":
			values = [][]byte{s.Aggregate}
		}
		for _, v := range values { // a text that is no value of the column's type
			if err := part.to.CheckText(ctx, r.pool, string(v)); err != nil {
				return usageStop(fmt.Sprintf("--%s is %q: table %s: %s", part.flag, v, t, source.OneLine(err)), "")
			}
		}
	}
	if s.From.IsZero() && s.To.IsZero() {
		return nil
	}
	t.resendBy.time, err = r.timeSQL(ctx, t)
	return err
}

// timeSQL is the SQL of the event's time, as the stream has it: that of the timestamp columns, else
// that of the commit. Where neither is known, the order is the one of a column that looks like it,
// and the report says so; NULL: there is none.
func (r *run) timeSQL(ctx context.Context, t *outboxTable) (string, error) {
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
func (r *run) columnTimes(ctx context.Context, t *outboxTable, names []string) (list []string, zone bool, err error) {
	part, err := FindPart(ctx, r.pool, t.Table.Table, names)
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
			job AS (UPDATE cdc_relay.bulk b SET state = 'sending', asked = $4, skipped = $5, filter = '{}', condition = NULL FROM fence
				WHERE b.job = $3 AND b.state = 'asking' RETURNING b.job),
			gap AS (UPDATE cdc_relay.gap g SET recovered_at = now(), job = job.job FROM job WHERE g.id = $6),
			noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) SELECT $1, $7, $8, 'resend', 0, $9, 'job ' || job.job || ': ' || $10 FROM job)
			SELECT EXISTS (SELECT FROM fence), EXISTS (SELECT FROM job)`,
			r.c.Slot, s.epoch, s.job, r.report.Recovered, r.report.Held, s.Gap, r.id.SystemID, s.who, r.opt.Reason, r.report.auditText()).Scan(&ours, &open)
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

// dueAt is when the row with that rank is sent; zero: at once.
func (s *resendRun) dueAt(began time.Time, rank int64) time.Time {
	if s.rate <= 0 || rank == 0 {
		return time.Time{}
	}
	return began.Add(time.Duration(float64(rank) / s.rate * float64(time.Second)))
}

// ResenderConfig is the configuration of a Resender.
type ResenderConfig struct {
	Source      source.Config
	Pool        *pgxpool.Pool
	SystemID    string
	Epoch       int64 // of this term: nothing is written once the slot has another one
	Incarnation int64 // of the slot
	Sink        Router
	Scope       event.Scope
	Settled     func() pglogrepl.LSN // up to where every event of the slot is settled
	Sent        *sent.Recorder
	Copied      func() // rows were copied, and that is committed
	Log         *zap.Logger
}

// Resender carries out the resends of one term, one after the other, in one goroutine.
type Resender struct {
	cfg    ResenderConfig
	woken  chan struct{} // cap 1
	logged string        // the error text that was logged last; "" after a success

	// Of the job that waits until the slot is past a moment: the text of a snapshot, and the end of
	// the WAL after it was taken.
	job          int64
	pastSnapshot string
	pastLSN      pglogrepl.LSN
	// slotPassed: the slot is past at. mark is how many entries the sent set's Recorder had then:
	// they must be written, too.
	slotPassed bool
	sentMark   uint64
}

// NewResender makes a Resender; it starts nothing.
func NewResender(cfg ResenderConfig) *Resender {
	return &Resender{cfg: cfg, woken: make(chan struct{}, 1)}
}

// Wake tells that there may be a job. It does not block.
func (s *Resender) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

const (
	resendEvery  = time.Second
	takeBackRows = 5000
)

var (
	errCancelled = errors.New("the job was cancelled")
	errNotYet    = errors.New("the slot has not passed what is to be judged")
)

// Run works until ctx is done, and returns nil then. It looks for jobs at the beginning, when it is
// woken, and once a second while there is one. Whatever fails is tried again later: delivery
// does not depend on it. Only a newer leader, an *event.Stop, ends it.
func (s *Resender) Run(ctx context.Context) error {
	for {
		busy, err := s.runDueJobs(ctx)
		switch stop := (*event.Stop)(nil); {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // whatever the error, the term is over
		case errors.As(err, &stop) && stop.Reason == "fenced":
			return err
		case err != nil && err.Error() != s.logged:
			s.cfg.Log.Warn("a resend waits: it is tried again, and delivery goes on", zap.Error(err))
			s.logged = err.Error()
		case err == nil:
			s.logged = ""
		}
		var again <-chan time.Time
		if busy || err != nil {
			again = time.After(resendEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.woken:
		case <-again:
		}
	}
}

// resendJob is a job as cdc_relay.bulk has it.
type resendJob struct {
	id                    int64
	choice                []byte
	condition, state      string
	routeName, routingKey []byte
	rate                  float64
	who, why              string
}

// jobsSQL lists the jobs that have something to be done, in their order. Only the one that is to be
// copied has its choice of rows, which may be large.
const jobsSQL = dlq.ReadFence + `
	SELECT b.job, CASE WHEN b.state = 'asking' THEN b.filter END, CASE WHEN b.state = 'asking' THEN coalesce(b.condition, '') ELSE '' END, b.state, b.route_name, b.routing_key, coalesce(b.rate, 0)::float8, b.who, b.reason
	FROM fence, cdc_relay.bulk b
	WHERE b.slot = $1::text AND b.system_id = $3 AND b.kind = 'resend' AND (b.state IN ('asking', 'sending') OR b.state = 'cancelled' AND b.result = '')
	ORDER BY b.state = 'sending', b.job LIMIT 100`

// runDueJobs does for each job what is due; busy: there are jobs.
func (s *Resender) runDueJobs(ctx context.Context) (busy bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	rows, err := s.cfg.Pool.Query(bounded, jobsSQL, s.cfg.Source.Slot, s.cfg.Epoch, s.cfg.SystemID)
	if err != nil {
		return false, fmt.Errorf("read cdc_relay.bulk: %w", err)
	}
	var list []resendJob
	for rows.Next() {
		var j resendJob
		if err := rows.Scan(&j.id, &j.choice, &j.condition, &j.state, &j.routeName, &j.routingKey, &j.rate, &j.who, &j.why); err != nil {
			return false, fmt.Errorf("read cdc_relay.bulk: %w", err)
		}
		list = append(list, j)
	}
	if err := rows.Err(); err != nil {
		return false, fmt.Errorf("read cdc_relay.bulk: %w", err)
	}
	if err := s.runFenced(ctx, closeSQL, s.cfg.SystemID); err != nil {
		return true, fmt.Errorf("close resend jobs: %w", err)
	}
	var errs []error // of one job: the others go on
	for i := range list {
		j := &list[i]
		var err error
		switch j.state {
		case "asking":
			err = s.copyJob(ctx, j)
		case "cancelled":
			err = s.takeBackCopies(ctx, j.id)
		}
		if err != nil && !errors.Is(err, errNotYet) {
			errs = append(errs, fmt.Errorf("resend job %d: %w", j.id, err))
		}
	}
	return len(list) > 0, errors.Join(errs...)
}

// closeSQL ends the jobs of which no row waits.
const closeSQL = dlq.WriteFence + `,
	done AS (UPDATE cdc_relay.bulk b SET state = 'done', closed_at = now(), filter = NULL FROM fence
		WHERE b.slot = $1 AND b.system_id = $3 AND b.kind = 'resend' AND b.state = 'sending' AND NOT EXISTS (SELECT FROM cdc_relay.retry t WHERE t.slot = $1 AND t.resend = b.job))
	SELECT EXISTS (SELECT FROM fence)`

// runFenced runs a statement under the leader's fence: it selects whether the epoch is still ours.
func (s *Resender) runFenced(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var ours bool
	err := s.cfg.Pool.QueryRow(ctx, sql, append([]any{s.cfg.Source.Slot, s.cfg.Epoch}, args...)...).Scan(&ours)
	if err == nil && !ours {
		return dlq.Fenced(s.cfg.Source.Slot, s.cfg.Epoch)
	}
	return err
}

// copyJob copies the rows of a job. What is wrong with its choice fails it.
func (s *Resender) copyJob(ctx context.Context, j *resendJob) error {
	r := &resendRun{job: j.id, rate: j.rate, who: j.who, epoch: s.cfg.Epoch, incarnation: s.cfg.Incarnation, route: event.Route{Name: j.routeName, RoutingKey: j.routingKey}}
	if err := json.Unmarshal(j.choice, &r.Choice); err != nil { // whoever asks in SQL may write any
		return s.failJob(ctx, j, "its choice cannot be read")
	}
	// what the slot is still to send is left out: a copy would be sent before older events of its
	// key
	if err := s.checkSettled(ctx, j.id); err != nil {
		return err
	}
	r.pastSnapshot = s.pastSnapshot
	run := newResend(&s.cfg.Source, s.cfg.Pool, r, j.condition)
	run.id.SystemID = s.cfg.SystemID
	run.opt.Sink, run.opt.Scope, run.opt.Reason = s.cfg.Sink, s.cfg.Scope, j.why
	ctx, stopWatch := s.watchCancel(ctx, j.id)
	defer stopWatch()
	err := run.copyResend(ctx)
	switch stop := (*event.Stop)(nil); {
	case err == nil:
		s.cfg.Copied()
		s.cfg.Log.Info("rows are sent again", zap.Int64("job", j.id), zap.String("who", j.who), zap.Int64("rows", run.report.Recovered), zap.Int64("waited_already", run.report.Held))
		return nil
	case errors.Is(err, errCancelled), errors.Is(context.Cause(ctx), errCancelled):
		return nil
	case errors.As(err, &stop) && stop.Code == event.ExitUsage || errors.As(err, &stop) && stop.Reason == "rights":
		return s.failJob(ctx, j, stop.What)
	case strings.HasPrefix(source.SQLState(err), "22"): // a value that its type cannot have
		return s.failJob(ctx, j, source.OneLine(err).Error())
	}
	return err
}

// watchCancel returns a context that ends once the job is cancelled: then the server ends what it
// reads for it. Until stop is called it looks once a second.
func (s *Resender) watchCancel(ctx context.Context, job int64) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for source.Sleep(ctx, resendEvery) {
			bounded, done := context.WithTimeout(ctx, source.AnswerTimeout)
			var cancelled bool
			err := s.cfg.Pool.QueryRow(bounded, `SELECT state = 'cancelled' FROM cdc_relay.bulk WHERE job = $1`, job).Scan(&cancelled)
			done()
			if err == nil && cancelled {
				cancel(errCancelled)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}

// checkSettled returns nil once the slot is past a moment after the job was asked for, and what was
// confirmed until then is recorded: all that had ended at that moment is delivered, deferred or a
// dead letter. Until then it returns errNotYet. Entries of the sent set are added before their
// events are settled.
func (s *Resender) checkSettled(ctx context.Context, job int64) error {
	if s.job != job {
		ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
		defer cancel()
		err := s.cfg.Pool.QueryRow(ctx, `SELECT s::text, pg_current_wal_insert_lsn() FROM pg_current_snapshot() s`).Scan(&s.pastSnapshot, &s.pastLSN)
		if err != nil {
			return fmt.Errorf("read the end of the WAL: %w", err)
		}
		s.job, s.slotPassed = job, false
	}
	if s.cfg.Settled() < s.pastLSN {
		return errNotYet
	}
	added, done := s.cfg.Sent.Counts()
	if !s.slotPassed {
		s.sentMark, s.slotPassed = added, true
	}
	if done < s.sentMark {
		return errNotYet
	}
	return nil
}

// failJob ends a job of which nothing was copied.
func (s *Resender) failJob(ctx context.Context, j *resendJob, why string) error {
	return s.runFenced(ctx, dlq.WriteFence+`,
		failed AS (UPDATE cdc_relay.bulk b SET state = 'failed', closed_at = now(), filter = NULL, condition = NULL, result = $4 FROM fence
			WHERE b.job = $3 AND b.state = 'asking' RETURNING b.slot, b.system_id, b.who, b.reason),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
			SELECT slot, system_id, who, 'resend', 0, reason, 'job ' || $3::bigint || ' failed: nothing is sent' FROM failed)
		SELECT EXISTS (SELECT FROM fence)`, j.id, why)
}

// takeBackCopies deletes the copies of a job that was cancelled. Those that are with a lane are
// sent all the same. If the job was for a gap, the gap is open again.
func (s *Resender) takeBackCopies(ctx context.Context, job int64) error {
	for {
		var left bool
		bounded, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
		var ours bool
		err := s.cfg.Pool.QueryRow(bounded, dlq.WriteFence+`,
			gone AS (DELETE FROM cdc_relay.retry t USING fence
				WHERE t.slot = $1::text AND t.n IN (SELECT n FROM cdc_relay.retry WHERE slot = $1::text AND resend = $3 ORDER BY n LIMIT $4) RETURNING t.n),
			counted AS (SELECT count(*) AS n, count(*) = $4 AS more FROM gone),
			opened AS (UPDATE cdc_relay.gap g SET recovered_at = NULL FROM fence WHERE g.job = $3 AND EXISTS (SELECT FROM gone)),
			noted AS (UPDATE cdc_relay.bulk b SET removed = removed + c.n, filter = NULL, condition = NULL, result = CASE WHEN c.more THEN '' ELSE (removed + c.n) || ' copies were taken back' END
				FROM fence, counted c WHERE b.job = $3)
			SELECT EXISTS (SELECT FROM fence), (SELECT more FROM counted)`, s.cfg.Source.Slot, s.cfg.Epoch, job, takeBackRows).Scan(&ours, &left)
		cancel()
		switch {
		case err != nil:
			return fmt.Errorf("take back what was cancelled: %w", err)
		case !ours:
			return dlq.Fenced(s.cfg.Source.Slot, s.cfg.Epoch)
		case !left:
			return nil
		}
	}
}
