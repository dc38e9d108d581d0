// Jobs: requests about many rows, which the leader carries out bit by bit. A resend is a job that
// copies rows of the outbox tables.

package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Bulk is a request about all rows that a filter chooses.
type Bulk struct {
	Kind   Kind
	Filter Filter
	Route  event.Route // of Replay, as in Action
	// requests per second; 0 means that they are made as fast as they are carried out
	Rate int
	By   Requester
}

// MaxRate is the highest Rate of a Bulk.
const MaxRate = 1_000_000

// chosen adds the conditions for the rows that a Bulk is about: those that its filter chooses and
// whose state allows the request. A purge without a key is only about closed dead letters, unless
// it names a state. A replay leaves out rows that were too large to read, because they may need
// more memory than the relay has, unless the filter names an event or its fault. A retry is about
// rows that wait for a time of their own, and about the first row of each destination: all other
// rows follow once that one was sent.
func (b *Bulk) chosen(w *where, t *Table) {
	b.Filter.choose(w, t)
	w.and("(" + b.Kind.allowed(t) + ")")
	if b.isAboutClosed() && b.Filter.State == "" {
		w.and("t.state IN ('replayed', 'discarded')")
	}
	if b.Kind == Retry {
		w.and("(t.next_attempt IS NOT NULL OR t.n IN (" + firstRowsSQL + "))")
	}
	if b.Kind == Replay && !b.Filter.namesFault() {
		w.and("t.left_out IS NULL")
	}
}

// firstRowsSQL finds the first row of each destination. It goes from one destination to the next in
// the index retry_dest, so its cost depends only on the number of destinations.
var firstRowsSQL = func() string {
	next := func(where string) string {
		return `(SELECT t.n, t.exchange_or_topic, t.dest FROM cdc_relay.retry t WHERE ` + mine + where + `
			ORDER BY t.exchange_or_topic, t.dest, t.incarnation, t.commit_lsn, t.idx LIMIT 1)`
	}
	return `WITH RECURSIVE d AS (` + next("") + ` UNION ALL SELECT x.* FROM d CROSS JOIN LATERAL ` +
		next(` AND (t.exchange_or_topic, t.dest) > (d.exchange_or_topic, d.dest)`) + ` x) SELECT d.n FROM d`
}()

// tables returns the tables whose rows the Bulk may be about, in the order in which they are
// processed: a deferred row can become a dead letter, but never the reverse.
func (b *Bulk) tables() []*Table {
	if b.Kind == Purge && b.Filter.Key != nil && b.Filter.State == "" {
		return []*Table{Deferred, DeadLetters}
	}
	return []*Table{b.Kind.table()}
}

// since returns the column with the time from which on a row is one that the Bulk is about. A job
// is about the rows that existed when it was requested, because the operator has not seen later
// ones.
func (b *Bulk) since(t *Table) string {
	switch {
	case len(b.tables()) > 1:
		// of both tables: a row that was deferred at that time counts wherever it is now
		return Deferred.at
	case t == DeadLetters && b.isAboutClosed():
		return "closed_at"
	}
	return t.at
}

// isAboutClosed reports whether the Bulk is only about closed dead letters.
func (b *Bulk) isAboutClosed() bool {
	return b.Filter.State == Replayed || b.Filter.State == Discarded ||
		b.Kind == Purge && b.Filter.Key == nil && b.Filter.State == ""
}

func (b *Bulk) check() error {
	if err := (&Action{Route: b.Route, By: b.By}).check(); err != nil {
		return err
	}
	for _, t := range b.tables() {
		if err := b.Filter.Check(t); err != nil {
			return err
		}
	}
	if s := b.Filter.State; (b.Kind == Replay || b.Kind == Discard) && s != "" && s != Open && s != Replaying {
		return &BadInput{"state", fmt.Sprintf("is %q, and only open dead letters can be asked for a %s", s, b.Kind)}
	}
	if b.Rate < 0 || b.Rate > MaxRate {
		return &BadInput{"rate", fmt.Sprintf("is %d, want 1 to %d requests per second", b.Rate, MaxRate)}
	}
	return nil
}

// Match counts the rows that a Bulk would be about now. It changes nothing.
func (a *Admin) Match(ctx context.Context, b Bulk) (int64, error) {
	if err := b.check(); err != nil {
		return 0, err
	}
	var sum int64
	for _, t := range b.tables() {
		w := where{args: []any{a.slot}}
		w.and(mine)
		b.chosen(&w, t)
		var n int64
		err := a.one(ctx, "count the rows", "SELECT count(*) FROM "+t.name+" t WHERE "+w.sql.String(), append([]any{again}, w.args...), &n)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// Job is a Bulk that was started.
type Job struct {
	ID      int64      `json:"id"`
	Kind    Kind       `json:"kind"`
	Who     string     `json:"who"`
	Why     string     `json:"why"`
	At      time.Time  `json:"at"`
	Rate    int        `json:"rate,omitempty"`
	State   string     `json:"state"`
	EndedAt *time.Time `json:"ended_at"`

	Matched   int64 `json:"matched"` // rows that were chosen when the job was requested
	Asked     int64 `json:"asked"`   // requests that were made for it so far
	Skipped   int64 `json:"skipped"` // rows with a waiting request of somebody else
	Done      int64 `json:"done"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`

	// of a resend: why it failed, or what became of it when it was cancelled
	Result string `json:"result,omitempty"`

	// set only when a single job is read, not in a list of jobs
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is a result with which rows of a job have failed, and one of these rows.
type Failure struct {
	N      int64  `json:"n"`
	Result string `json:"result"`
}

// The states of a job.
const (
	JobRuns      = "running"
	JobDone      = "done"
	JobCancelled = "cancelled"
	JobFailed    = "failed" // of a resend: nothing was copied, and Result says why
)

// Start stores a Bulk as a job. When no row is chosen it stores nothing, and the ID of the job is
// 0.
func (a *Admin) Start(ctx context.Context, b Bulk) (Job, error) {
	matched, err := a.Match(ctx, b)
	if err != nil {
		return Job{}, err
	}
	j := Job{Kind: b.Kind, Who: b.By.Who, Why: b.By.Why, Rate: b.Rate, State: JobDone}
	if matched == 0 {
		return j, nil
	}
	filter, err := stored(&b.Filter)
	if err != nil {
		return Job{}, err
	}
	column, value, who := b.By.column(10)
	err = a.one(ctx, "write cdc_relay.bulk", `INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, route_name, routing_key, rate, reason, matched, in_dead_letters`+column+`)
		SELECT slot, system_id, $2, $3, $4, $5, nullif($6::integer, 0), $7, $8, $9`+value+` FROM cdc_relay.slots WHERE slot = $1::text RETURNING job`,
		append([]any{a.slot, b.Kind, filter, b.Route.Name, b.Route.RoutingKey, b.Rate, b.By.Why, matched, b.tables()[0] == DeadLetters}, who...), &j.ID)
	if err != nil {
		return Job{}, err
	}
	return a.Job(ctx, j.ID)
}

// stored encodes a filter, or a choice, as a job stores it.
func stored(v any) ([]byte, error) {
	filter, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write the filter: %w", err)
	}
	if len(filter) > maxStored {
		return nil, &BadInput{"filter", fmt.Sprintf("has %d bytes as JSON, want at most %d", len(filter), maxStored)}
	}
	return filter, nil
}

// jobColumns are the columns of which a Job is made. What became of the rows of a resend is where
// they are now. Of the jobs $2 nothing is counted.
const jobColumns = `b.job, b.kind, b.who, b.reason, b.created_at, coalesce(b.rate, 0), b.state, b.closed_at, b.matched, b.asked, b.skipped,
	CASE WHEN b.job = ANY ($2::bigint[]) THEN 0 WHEN b.kind = 'resend'
		THEN b.asked - b.removed - (SELECT count(*) FROM cdc_relay.retry t WHERE t.slot = b.slot AND t.resend = b.job) - (SELECT count(*) FROM cdc_relay.dead_letter d WHERE d.resend = b.job AND d.state <> 'replayed')
		ELSE (SELECT count(*) FROM cdc_relay.request r WHERE r.job = b.job AND r.state = 'done') END,
	CASE WHEN b.job = ANY ($2::bigint[]) THEN 0 WHEN b.kind = 'resend' THEN (SELECT count(*) FROM cdc_relay.dead_letter d WHERE d.resend = b.job AND d.state <> 'replayed')
		ELSE (SELECT count(*) FROM cdc_relay.request r WHERE r.job = b.job AND r.state = 'failed') END,
	CASE WHEN b.job = ANY ($2::bigint[]) THEN 0 WHEN b.kind = 'resend' THEN b.removed ELSE (SELECT count(*) FROM cdc_relay.request r WHERE r.job = b.job AND r.state = 'cancelled') END,
	b.result`

// Job returns the progress of a job.
func (a *Admin) Job(ctx context.Context, id int64) (Job, error) {
	j, err := scanJob(a.db.QueryRow(ctx, `SELECT `+jobColumns+` FROM cdc_relay.bulk b WHERE b.slot = $1 AND b.job = $3`, a.slot, []int64{}, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return Job{}, &NotFound{What: "job", N: id, Slot: a.slot}
	}
	if err == nil && j.Failed > 0 {
		j.Failures, err = a.failures(ctx, id)
	}
	return j, explain("read cdc_relay.bulk", err)
}

// failures returns the most frequent failures of a job, one for each text that differs in more than
// numbers. It reads at most a thousand of the job's requests, because it is also called while the
// job runs.
func (a *Admin) failures(ctx context.Context, id int64) ([]Failure, error) {
	return all(ctx, a, "read cdc_relay.request", `SELECT (array_agg(n ORDER BY n))[1], (array_agg(result ORDER BY n))[1]
		FROM (SELECT n, result FROM cdc_relay.request WHERE job = $1 AND state = 'failed' LIMIT 1000) f
		GROUP BY regexp_replace(result, '[0-9]+', '#', 'g') ORDER BY count(*) DESC, 1 LIMIT 5`, []any{id}, pgx.RowToStructByPos[Failure])
}

// maxEnded is of how many jobs an Admin remembers that and how they have ended.
const maxEnded = 200

// Jobs lists the newest jobs. What has become of all requests of one is counted once.
func (a *Admin) Jobs(ctx context.Context, limit int) ([]Job, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, err := all(ctx, a, "read cdc_relay.bulk", `SELECT `+jobColumns+` FROM cdc_relay.bulk b WHERE b.slot = $1 ORDER BY b.job DESC LIMIT $3`,
		[]any{a.slot, append([]int64{}, slices.Collect(maps.Keys(a.ended))...), limit}, func(row pgx.CollectableRow) (Job, error) { return scanJob(row) })
	if a.ended == nil {
		a.ended = map[int64]Job{}
	}
	for i, j := range list {
		if known, is := a.ended[j.ID]; is {
			list[i] = known
		} else if j.EndedAt != nil && j.Kind != ResendRows && j.Done+j.Failed+j.Cancelled == j.Asked {
			a.ended[j.ID] = j
		}
	}
	if len(a.ended) > maxEnded {
		clear(a.ended) // the next list counts again
	}
	return list, err
}

func scanJob(row pgx.Row) (Job, error) {
	var j Job
	var ended *time.Time
	err := row.Scan(&j.ID, &j.Kind, &j.Who, &j.Why, &j.At, &j.Rate, &j.State, &ended, &j.Matched, &j.Asked, &j.Skipped, &j.Done, &j.Failed, &j.Cancelled, &j.Result)
	j.At, j.EndedAt = j.At.UTC(), utc(ended)
	if ended == nil {
		j.State = JobRuns
	}
	return j, err
}

// Cancel ends a job: no more requests are made for it, and those that wait are cancelled. The work
// already done stays, and what is being carried out at this moment is finished. A job that has
// ended stays as it is.
func (a *Admin) Cancel(ctx context.Context, id int64, by Requester) (Job, error) {
	if err := by.Check(); err != nil {
		return Job{}, err
	}
	if by.Who == "" {
		if _, err := a.db.Exec(ctx, `SELECT cdc_relay.cancel_job($1, $2, $3)`, id, a.slot, by.Why); err != nil {
			return Job{}, explain("cancel the job", err)
		}
		return a.Job(ctx, id)
	}
	// This does the same as the SQL function cancel_job, but as the relay's role, which may name
	// who asks. It takes two statements, because the second one must see the requests that the
	// leader made before the first one took the job from it.
	_, err := a.db.Exec(ctx, `WITH job AS (UPDATE cdc_relay.bulk SET state = 'cancelled', closed_at = now(), filter = NULL
			WHERE job = $1 AND slot = $2 AND closed_at IS NULL RETURNING system_id)
		INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) SELECT $2, system_id, $3, 'cancel', 0, $4, 'job ' || $1::bigint FROM job`,
		id, a.slot, by.Who, by.Why)
	if err != nil {
		return Job{}, explain("cancel the job", err)
	}
	_, err = a.db.Exec(ctx, `UPDATE cdc_relay.request SET state = 'cancelled', done_at = now()
		WHERE job = $1 AND slot = $2 AND state = 'waiting' AND EXISTS (SELECT FROM cdc_relay.bulk b WHERE b.job = $1 AND b.state = 'cancelled')`, id, a.slot)
	if err != nil {
		return Job{}, explain("cancel the job's requests", err)
	}
	return a.Job(ctx, id)
}

// Resend: an operator sends rows of the outbox tables again, whether they were sent before or not.
// A job says which rows. The leader copies them into the retry table in one transaction, and from
// there they go like any deferred row (internal/replication/repair).

// ResendRows is the kind of a job that sends rows again. No request about a single row is made for
// it.
const ResendRows Kind = "resend"

// Choice says which rows of the outbox tables are sent again, and in which order. A row is chosen
// when it meets every field that is set. Texts are bytes, as in Filter.
type Choice struct {
	Table string   `json:"table,omitempty"` // schema.name; "" means every outbox table
	IDs   [][]byte `json:"ids,omitempty"`
	Key   []byte   `json:"key,omitempty"` // of the event, like Aggregate; nil matches any

	Aggregate []byte    `json:"aggregate,omitempty"`
	From      time.Time `json:"from,omitzero"` // of the event's time, inclusive; zero matches any
	To        time.Time `json:"to,omitzero"`   // exclusive
	// the number of an accepted gap, whose rows are chosen; 0 for none
	Gap     int64  `json:"gap,omitempty"`
	Unsent  bool   `json:"unsent,omitempty"`
	OrderBy string `json:"order_by,omitempty"`
	// OrderByBegin accepts a column OrderBy that is set when a transaction begins.
	OrderByBegin bool `json:"order_by_begin,omitempty"`

	Unordered bool `json:"unordered,omitempty"`
}

// MaxResent is how many rows one job may send again, because they are in the retry table at once.
const MaxResent = 1_000_000

// Resend is a request to send rows again.
type Resend struct {
	Choice
	// SQL that the rows must meet; it runs with the relay's rights; "" for none
	Condition string
	// where the rows go; a nil part is the one that each event has by the configuration
	Route   event.Route
	Rate    int // rows per second; 0 means as fast as they go
	By      Requester
	Matched int64 // rows that were chosen when they were counted
}

// StartResend stores a Resend as a job. Only one resend copies its rows at a time.
func (a *Admin) StartResend(ctx context.Context, r Resend) (Job, error) {
	choice, err := stored(&r.Choice)
	if err := errors.Join(err, (&Action{Route: r.Route, By: r.By}).check()); err != nil {
		return Job{}, err
	}
	column, value, who := r.By.column(9)
	args := append([]any{a.slot, ResendRows, choice, r.Route.Name, r.Route.RoutingKey, max(r.Rate, 0), r.By.Why, r.Matched}, who...)
	if r.Condition != "" { // an operator's role may not write this column
		args = append(args, r.Condition)
		column, value = column+", condition", fmt.Sprintf("%s, $%d", value, len(args))
	}
	var id int64
	err = a.one(ctx, "write cdc_relay.bulk", `INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, route_name, routing_key, rate, reason, matched, in_dead_letters`+column+`)
		SELECT slot, system_id, $2, $3, $4, $5, nullif($6::integer, 0), $7, $8, false`+value+` FROM cdc_relay.slots WHERE slot = $1::text
		ON CONFLICT (slot) WHERE kind = 'resend' AND state = 'asking' DO NOTHING RETURNING job`, args, &id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Job{}, a.busy(ctx)
	case err != nil:
		return Job{}, err
	}
	return a.Job(ctx, id)
}

// Busy is the error for a resend while another one has not copied its rows yet.
type Busy struct {
	Job int64
	Who string
}

func (e *Busy) Error() string {
	return fmt.Sprintf("resend job %d of %s has not copied its rows yet: one does so at a time", e.Job, e.Who)
}

func (a *Admin) busy(ctx context.Context) error {
	var other Busy
	err := a.one(ctx, "read cdc_relay.bulk", `SELECT job, who FROM cdc_relay.bulk WHERE slot = $1 AND kind = $2 AND state = 'asking'`, []any{a.slot, ResendRows}, &other.Job, &other.Who)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // the other one has copied its rows by now
		return errors.New("another resend was copying its rows: run it again")
	case err != nil:
		return err
	}
	return &other
}

// CloseGap closes an accepted gap because an operator says that nothing of it needs to be sent.
func (a *Admin) CloseGap(ctx context.Context, gap int64, by Requester) error {
	if err := by.Check(); err != nil {
		return err
	}
	var closed bool
	column, value, who := by.column(4)
	err := a.one(ctx, "close the gap", `WITH closed AS (UPDATE cdc_relay.gap SET recovered_at = now() WHERE id = $2 AND slot = $1::text AND recovered_at IS NULL RETURNING system_id),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, action, n, why, result`+column+`) SELECT $1, system_id, 'close gap', 0, $3, 'gap ' || $2::bigint || ': closed, nothing is sent'`+value+` FROM closed)
		SELECT EXISTS (SELECT FROM closed)`, append([]any{a.slot, gap, by.Why}, who...), &closed)
	if err != nil || closed {
		return err
	}
	return a.CheckGapIsOpen(ctx, gap)
}

// OpenGaps returns the accepted gaps of the slot that have ended and whose rows may never have been
// sent.
func (a *Admin) OpenGaps(ctx context.Context) (list []int64, err error) {
	err = a.one(ctx, "read cdc_relay.gap", `SELECT coalesce(array_agg(g.id ORDER BY g.id), '{}') FROM cdc_relay.gap g JOIN cdc_relay.slots s ON s.slot = g.slot AND s.system_id = g.system_id
		WHERE g.slot = $1 AND g.recovered_at IS NULL AND g.until_xid IS NOT NULL`, []any{a.slot}, &list)
	return list, err
}

// CheckGapIsOpen returns an error unless the gap is open.
func (a *Admin) CheckGapIsOpen(ctx context.Context, gap int64) error {
	var open []int64
	err := a.one(ctx, "read cdc_relay.gap", `SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM cdc_relay.gap WHERE slot = $1 AND recovered_at IS NULL`, []any{a.slot}, &open)
	if err != nil || slices.Contains(open, gap) {
		return err
	}
	hint := "none is open"
	if len(open) > 0 {
		hint = "open are: " + strings.Trim(fmt.Sprint(open), "[]")
	}
	return &NotFound{What: "open gap", N: gap, Slot: a.slot, Hint: hint}
}
