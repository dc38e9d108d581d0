// The leader's part of a resend: it copies the rows of jobs, and takes back what was cancelled.

package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

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
	logged string
	// of the job that waits: what had ended at a moment, and where the WAL ended after
	// it
	job  int64
	past string
	at   pglogrepl.LSN
	// marked: the slot is past that; mark: entries of the sent set that were added then
	marked bool
	mark   uint64
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
		busy, err := s.once(ctx)
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
	WHERE b.slot = $1::text AND b.system_id IN ($3, '') AND b.kind = 'resend' AND (b.state IN ('asking', 'sending') OR b.state = 'cancelled' AND b.result = '')
	ORDER BY b.state = 'sending', b.job LIMIT 100`

// once does what is due. busy: there are jobs.
func (s *Resender) once(ctx context.Context) (busy bool, err error) {
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
	if err := s.change(ctx, closeSQL, s.cfg.SystemID); err != nil {
		return true, fmt.Errorf("close resend jobs: %w", err)
	}
	var errs []error // of one job: the others go on
	for i := range list {
		j := &list[i]
		var err error
		switch j.state {
		case "asking":
			err = s.copy(ctx, j)
		case "cancelled":
			err = s.takeBack(ctx, j.id)
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

// change runs a statement under the fence.
func (s *Resender) change(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var ours bool
	err := s.cfg.Pool.QueryRow(ctx, sql, append([]any{s.cfg.Source.Slot, s.cfg.Epoch}, args...)...).Scan(&ours)
	if err == nil && !ours {
		return dlq.Fenced(s.cfg.Source.Slot, s.cfg.Epoch)
	}
	return err
}

// copy copies the rows of a job. What is wrong with its choice fails it.
func (s *Resender) copy(ctx context.Context, j *resendJob) error {
	r := &resend{job: j.id, rate: j.rate, who: j.who, epoch: s.cfg.Epoch, incarnation: s.cfg.Incarnation, route: event.Route{Name: j.routeName, RoutingKey: j.routingKey}}
	if err := json.Unmarshal(j.choice, &r.Choice); err != nil { // whoever asks in SQL may write any
		return s.fail(ctx, j, "its choice cannot be read")
	}
	// what the slot is still to send is left out: a copy would be sent before older events of its
	// key
	if err := s.settled(ctx, j.id); err != nil {
		return err
	}
	r.past = s.past
	run := newResend(&s.cfg.Source, s.cfg.Pool, r, j.condition)
	run.id.SystemID = s.cfg.SystemID
	run.opt.Sink, run.opt.Scope, run.opt.Reason = s.cfg.Sink, s.cfg.Scope, j.why
	ctx, stopWatch := s.watch(ctx, j.id)
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
		return s.fail(ctx, j, stop.What)
	case strings.HasPrefix(source.SQLState(err), "22"): // a value that is none to the server
		return s.fail(ctx, j, source.OneLine(err).Error())
	}
	return err
}

// watch returns a context that ends once the job is cancelled: then the server ends what it reads
// for it. Until stop is called it looks once a second.
func (s *Resender) watch(ctx context.Context, job int64) (_ context.Context, stop func()) {
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

// settled returns nil once the slot is past a moment after the job was asked for, and what was
// confirmed until then is recorded: all that had ended at that moment is delivered, deferred or a
// dead letter. Entries of the sent set are added before their events are settled.
func (s *Resender) settled(ctx context.Context, job int64) error {
	if s.job != job {
		ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
		defer cancel()
		err := s.cfg.Pool.QueryRow(ctx, `SELECT s::text, pg_current_wal_insert_lsn() FROM pg_current_snapshot() s`).Scan(&s.past, &s.at)
		if err != nil {
			return fmt.Errorf("read the end of the WAL: %w", err)
		}
		s.job, s.marked = job, false
	}
	if s.cfg.Settled() < s.at {
		return errNotYet
	}
	added, done := s.cfg.Sent.Counts()
	if !s.marked {
		s.mark, s.marked = added, true
	}
	if done < s.mark {
		return errNotYet
	}
	return nil
}

// fail ends a job of which nothing was copied.
func (s *Resender) fail(ctx context.Context, j *resendJob, why string) error {
	return s.change(ctx, dlq.WriteFence+`,
		failed AS (UPDATE cdc_relay.bulk b SET state = 'failed', closed_at = now(), filter = NULL, condition = NULL, result = $4 FROM fence
			WHERE b.job = $3 AND b.state = 'asking' RETURNING b.slot, b.system_id, b.who, b.reason),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
			SELECT slot, system_id, who, 'resend', 0, reason, 'job ' || $3::bigint || ' failed: nothing is sent' FROM failed)
		SELECT EXISTS (SELECT FROM fence)`, j.id, why)
}

// takeBack deletes the copies of a job that was cancelled. Those that are with a lane are sent all
// the same. A gap that they were of is open again.
func (s *Resender) takeBack(ctx context.Context, job int64) error {
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
