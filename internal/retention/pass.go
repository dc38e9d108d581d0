// One pass: the parts of the sent set whose time has come, one small transaction after the other.

package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

const (
	// statementTimeout bounds on our side what the server bounds: see plan. findTimeout: see
	// findPlan.
	statementTimeout = 20 * time.Second
	findTimeout      = 70 * time.Second
	batchRows        = 100     // that one transaction deletes: more delay live events
	pageParts        = 1000    // that are listed at once
	partBytes        = 8 << 10 // of digests whose rows are found together: 1,000; or one part
	restFactor       = 3       // times as long as a transaction took it rests after it
	longestRest      = 10 * time.Second
)

// pass is the state of one pass.
type pass struct {
	*Retention
	began  time.Time
	tables []sent.Description
	said   map[string]bool

	failed  map[uint32]bool // relations of which nothing more is tried in this pass
	heldBy  string
	overdue time.Time
	err     error // the first
}

// parts are those of one relation and chunk.
type parts struct {
	relation uint32
	chunk    int64
	numbers  []int64
	size     int           // bytes of their digests
	age      time.Duration // of the oldest
}

// pass makes one. A relation that fails does not keep others waiting: the error that is returned is
// one of the whole pass.
func (r *Retention) pass(ctx context.Context) error {
	p := &pass{Retention: r, began: time.Now(), failed: map[uint32]bool{}, said: map[string]bool{}}
	err := p.describeTables(ctx)
	if err == nil {
		err = r.look(ctx)
	}
	if err == nil && r.past.end > 0 {
		err = p.walk(ctx)
	}
	if ctx.Err() != nil {
		return err
	}
	for said := range r.logged {
		if !p.said[said] {
			delete(r.logged, said)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot.HeldBy, r.snapshot.Overdue, r.snapshot.Error = p.heldBy, p.overdue, ""
	if failed := cmp.Or(err, p.err); failed != nil {
		r.snapshot.Error = failed.Error()
		return err
	}
	r.snapshot.LastPass = time.Now()
	return nil
}

// describeTables reads the catalogue alone.
func (p *pass) describeTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for _, t := range p.cfg.Tables {
		d, err := sent.Describe(ctx, p.cfg.Pool, t)
		if err != nil {
			p.warn(t.String(), err)
			return err
		}
		if what, fix := lacks(&d, t); what != "" {
			p.warn(t.String(), &refusal{what, fix})
			continue
		}
		p.tables = append(p.tables, d)
	}
	return nil
}

// walk goes through the parts that are ripe, the oldest first.
func (p *pass) walk(ctx context.Context) error {
	at, n := "-infinity", int64(0)
	for {
		list, last, count, err := p.ripe(ctx, at, n)
		if err != nil {
			return err
		}
		for _, of := range list {
			if err := p.delete(ctx, of); err != nil {
				return err
			}
		}
		if count < pageParts {
			return nil
		}
		at, n = last.at, last.n
	}
}

type cursor struct {
	at string
	n  int64
}

// ripe reads one page of parts, and groups them. count is how many parts it has read.
func (p *pass) ripe(ctx context.Context, at string, n int64) (list []*parts, last cursor, count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := p.cfg.Pool.Query(ctx, ripeSQL, p.cfg.Slot, p.past.snapshot, p.cfg.Keep.Seconds(), at, n, pageParts)
	if err != nil {
		return nil, last, 0, fmt.Errorf("read cdc_relay.sent: %w", err)
	}
	var of parts
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&of.relation, &of.chunk, &last.n, &last.at, &age, &of.size}, func() error {
		count++
		i := slices.IndexFunc(list, func(l *parts) bool {
			return l.relation == of.relation && l.chunk == of.chunk && l.size+of.size <= partBytes
		})
		if i < 0 {
			i = len(list)
			list = append(list, &parts{relation: of.relation, chunk: of.chunk, age: time.Duration(age * float64(time.Second))})
		}
		list[i].numbers, list[i].size = append(list[i].numbers, last.n), list[i].size+of.size
		return nil
	})
	if err != nil {
		return nil, last, 0, fmt.Errorf("read cdc_relay.sent: %w", err)
	}
	return list, last, count, nil
}

// delete deletes the rows of some parts, and the parts when none is left. Parts of a table that is
// not configured stay as they are: whoever configures it knows its columns.
func (p *pass) delete(ctx context.Context, of *parts) error {
	if p.failed[of.relation] {
		p.waits(of)
		return nil
	}
	i := slices.IndexFunc(p.tables, func(d sent.Description) bool { return slices.Contains(d.Family, of.relation) })
	if i < 0 {
		return nil
	}
	d, some := &p.tables[i], false
	for _, l := range d.Leaves {
		if !slices.Contains(l.Under, of.relation) {
			continue
		}
		left, err := p.deleteFrom(ctx, d, l, of)
		var fenced *event.Stop
		switch {
		case err == nil:
			some = some || left
			continue
		case ctx.Err() != nil || errors.As(err, &fenced):
			return err
		}
		// The parts stay as they are, and the next pass looks again.
		p.closeConn()
		p.failed[of.relation], some = !ofRows(err), true
		p.err = cmp.Or(p.err, err)
		if !passes(err) {
			p.warn(l.Name, err)
		}
	}
	if some {
		p.waits(of)
		return nil
	}
	return p.within(ctx, statementTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		var ours bool
		err := conn.QueryRow(ctx, dropSQL, p.cfg.Slot, p.cfg.Epoch, of.relation, of.chunk, of.numbers).Scan(&ours)
		return p.fencedUnless(ours, err)
	})
}

// waits notes since when some parts wait.
func (p *pass) waits(of *parts) {
	if since := p.began.Add(p.cfg.Keep - of.age); p.overdue.IsZero() || since.Before(p.overdue) {
		p.overdue = since
	}
}

// found are rows that may be deleted.
type found struct {
	at      []pgtype.TID
	digests []int64
}

// deleteFrom deletes the rows of parts from one leaf. left: some are still there.
func (p *pass) deleteFrom(ctx context.Context, d *sent.Description, l sent.Leaf, of *parts) (left bool, err error) {
	if none := unindexed(d, l); none != nil {
		return true, none
	}
	var rows found
	err = p.within(ctx, findTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return tableread.Delete(ctx, conn, l.Name, settings, func(tx pgx.Tx) (err error) {
			rows, left, err = p.find(ctx, tx, d, l, of)
			return err
		})
	})
	if err != nil {
		return true, fmt.Errorf("find delivered rows: %w", err)
	}
	sql := removeSQL(l, d)
	for len(rows.at) > 0 {
		n := min(len(rows.at), batchRows)
		gone, err := p.remove(ctx, l, sql, found{rows.at[:n], rows.digests[:n]})
		if err != nil {
			return true, fmt.Errorf("delete delivered rows: %w", err)
		}
		left = left || gone < n // somebody has them locked, or has changed them, or refers to them
		rows = found{rows.at[n:], rows.digests[n:]}
	}
	return left, nil
}

// find reads which rows of a leaf may be deleted. left: others have to stay.
func (p *pass) find(ctx context.Context, tx pgx.Tx, d *sent.Description, l sent.Leaf, of *parts) (rows found, left bool, err error) {
	if _, err := tx.Exec(ctx, findPlan); err != nil {
		return rows, false, err
	}
	result, err := tx.Query(ctx, findSQL(l, d), p.cfg.Slot, p.cfg.Epoch, of.relation, of.chunk, of.numbers, d.Family, d.Names)
	if err != nil {
		return rows, false, err
	}
	var at pgtype.TID
	var digest int64
	var holder string
	var dead bool
	_, err = pgx.ForEachRow(result, []any{&at, &digest, &holder, &dead}, func() error {
		if holder != "" || dead {
			left = true
			p.heldBy = cmp.Or(p.heldBy, holder)
			return nil
		}
		rows.at, rows.digests = append(rows.at, at), append(rows.digests, digest)
		return nil
	})
	return rows, left, err
}

// remove deletes a batch. Rows to which another table refers cannot be deleted: they are found by
// halves, and stay.
func (p *pass) remove(ctx context.Context, l sent.Leaf, sql string, rows found) (gone int, err error) {
	err = p.within(ctx, statementTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return tableread.Delete(ctx, conn, l.Name, settings, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, plan); err != nil {
				return err
			}
			var ours bool
			err := tx.QueryRow(ctx, sql, p.cfg.Slot, p.cfg.Epoch, rows.at, rows.digests).Scan(&ours, &gone)
			return p.fencedUnless(ours, err)
		})
	})
	switch {
	case err == nil:
		if p.cfg.Deleted != nil && gone > 0 {
			p.cfg.Deleted(gone)
		}
		return gone, nil
	case !sqlClass(err, "23"):
		return 0, err
	case len(rows.at) == 1:
		p.warn(l.Name, err)
		return 0, nil
	}
	half := len(rows.at) / 2
	for _, part := range []found{{rows.at[:half], rows.digests[:half]}, {rows.at[half:], rows.digests[half:]}} {
		n, err := p.remove(ctx, l, sql, part)
		if gone += n; err != nil {
			return gone, err
		}
	}
	return gone, nil
}

func (p *pass) fencedUnless(ours bool, err error) error {
	if err == nil && !ours {
		return dlq.Fenced(p.cfg.Slot, p.cfg.Epoch)
	}
	return err
}

// within calls do with the connection of the pass, and rests afterwards: at most a quarter of the
// time is spent in the database.
func (p *pass) within(ctx context.Context, patience time.Duration, do func(context.Context, *pgx.Conn) error) error {
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if p.cfg.Work != nil {
		p.cfg.Work(true)
		defer p.cfg.Work(false)
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, patience)
	err = do(bounded, conn)
	cancel()
	rest := time.NewTimer(min(restFactor*time.Since(began), longestRest))
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-rest.C:
	}
	return err
}

// connect takes a connection out of the pool for all passes: so the checks of each transaction are
// planned once. After an error, and in the end, it is closed, and not given back: see
// tableread.Alone.
func (r *Retention) connect(ctx context.Context) (*pgx.Conn, error) {
	if r.conn != nil {
		return r.conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	conn, err := r.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	r.conn = conn.Hijack()
	return r.conn, nil
}

func (r *Retention) closeConn() {
	if r.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.conn.Close(ctx) // what is open on it is rolled back
	r.conn = nil
}
