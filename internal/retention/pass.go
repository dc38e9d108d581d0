// One pass: the zones of all leaves that are worth a look, one transaction after the other.

package retention

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// pass is the state of one pass.
type pass struct {
	*Retention
	began  time.Time
	tables []description
	bounds []bound
	conn   *pgx.Conn // of this pass alone: the pool has few; nil: none yet
	failed map[uint32]bool
	said   map[string]bool
	// since when the oldest row waits that another slot holds, or that a failure has left; zero:
	// none does
	overdue time.Time
}

// pass makes one. An error is the first of several: a leaf that fails does not keep others waiting.
func (r *Retention) pass(ctx context.Context) error {
	p := &pass{Retention: r, began: time.Now(), failed: map[uint32]bool{}, said: map[string]bool{}}
	defer p.closeConn()
	err := p.prepare(ctx)
	prepared := err == nil
	if prepared {
		_, p.overdue = p.heldBack()
		err = p.lookAt(ctx, dueZones(r.leaves, p.began))
	}
	if ctx.Err() != nil {
		return err
	}
	for said := range r.logged {
		if !p.said[said] {
			delete(r.logged, said)
		}
	}
	r.update(func(s *Snapshot) {
		s.Error = ""
		if prepared {
			s.HeldBy, s.Overdue = p.heldBack()
			s.Overdue = earlier(s.Overdue, p.failedSince())
		}
		if err != nil {
			s.Error = err.Error()
			return
		}
		s.LastPass = time.Now()
	})
	return err
}

// prepare finds the leaves and up to where their rows are settled. It reads the catalogue alone.
func (p *pass) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, p.cfg.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'"); err != nil {
			return err
		}
		found := map[uint32]*leaf{}
		for i, t := range p.cfg.Tables {
			d, err := describe(ctx, tx, t)
			if err != nil {
				return err
			}
			b, err := p.readBound(ctx, tx, d)
			if err != nil {
				return err
			}
			p.tables, p.bounds = append(p.tables, d), append(p.bounds, b)
			if d.ageUnknown(p.cfg.Keep) {
				p.warn(t.String(), errors.New("no column has the time of its rows, and track_commit_timestamp is off"))
				continue
			}
			leaves, err := readLeaves(ctx, tx, t, d)
			if err != nil {
				return err
			}
			filled := false
			for _, size := range leaves {
				l := p.leaves[size.oid]
				if l == nil {
					l = &leaf{oid: size.oid}
				}
				l.name, l.of, l.settled, l.writes = size.name, i, b.settled, size.writes
				l.resize(size.file, size.blocks, p.began)
				filled = filled || size.blocks > 0
				found[size.oid] = l
			}
			p.noteUnsettled(i, filled && b.settled == 0 && b.heldBy != "")
		}
		p.leaves = found
		return nil
	})
	if err != nil {
		p.warn(p.cfg.Slot, err)
		return err
	}
	if len(p.bounds) > 0 {
		p.samples.add(p.bounds[0].now, p.bounds[0].ended, p.cfg.Keep)
	}
	return nil
}

// lookAt looks at zones, and deletes what may be deleted there. Between two transactions it rests:
// at most a quarter of the time is spent in the database.
func (p *pass) lookAt(ctx context.Context, zones []dueZone) (failed error) {
	for _, z := range zones {
		if p.failed[z.oid] {
			continue
		}
		p.update(func(s *Snapshot) { s.Overdue = earlier(z.due, p.overdue) })
		err := p.zone(ctx, z)
		var fenced *event.Stop
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil || errors.As(err, &fenced):
			return err
		}
		// What is known of the zone stays as it was, and the next pass looks again.
		p.closeConn()
		z.zones[z.number].failed = true
		p.failed[z.oid] = !ofRows(err)
		p.overdue = earlier(p.overdue, z.due)
		if failed == nil {
			failed = err
		}
		if !passes(err) {
			p.warn(z.name, err)
		}
	}
	return failed
}

// zone looks at a zone, deletes from it, and remembers when to look again.
func (p *pass) zone(ctx context.Context, z dueZone) error {
	began := time.Now()
	from, to := z.bounds(z.number)
	sql, args := p.rows(z.leaf)
	var all findings
	for ; from < to; from += stepBlocks {
		step := append(append([]any{}, args...), tid(from), tid(min(from+stepBlocks, to)))
		s, err := p.look(ctx, z.name, sql.look(), p.withAge(step))
		if err != nil {
			return err
		}
		if s.ripe > 0 {
			gone, err := p.remove(ctx, z.leaf, sql.remove(), args, from, min(from+stepBlocks, to), s)
			if err != nil {
				return err
			}
			s.held += max(0, s.ripe-gone)
		}
		all.add(s)
	}
	z.zones[z.number] = all.nextLook(began, z.writes, p.cfg.Keep, max(passEvery(p.cfg.Keep), time.Minute))
	return nil
}

// rows is the SQL of a leaf, with its first parameters.
func (p *pass) rows(l *leaf) (rowsSQL, []any) {
	d := p.tables[l.of]
	return newRowsSQL(l.name, d.oid, d.id, d.at, p.cfg.Keep > 0), []any{p.cfg.Slot, p.cfg.Epoch, d.oids, d.names}
}
