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
	late   map[int]bool // tables with rows that are old enough and not settled
}

// pass makes one. An error is the first of several: a leaf that fails does not keep others waiting.
func (r *Retention) pass(ctx context.Context) error {
	p := &pass{Retention: r, began: time.Now(), failed: map[uint32]bool{}, said: map[string]bool{}, late: map[int]bool{}}
	defer p.closeConn()
	err := p.prepare(ctx)
	if err == nil {
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
		s.Error, s.HeldBy = "", p.heldBy()
		if err != nil {
			s.Error = err.Error()
			return
		}
		s.LastPass, s.Overdue = time.Now(), time.Time{}
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
			for _, size := range leaves {
				l := p.leaves[size.oid]
				if l == nil {
					l = &leaf{oid: size.oid}
				}
				l.name, l.of, l.settled, l.writes = size.name, i, b.settled, size.writes
				l.resize(size.file, size.blocks, p.began)
				found[size.oid] = l
			}
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

// heldBy is a slot that has not settled what is old enough.
func (p *pass) heldBy() string {
	for i, b := range p.bounds {
		if b.heldBy != "" && p.late[i] {
			return b.heldBy
		}
	}
	return ""
}

// lookAt looks at zones, and deletes what may be deleted there. Between two transactions it rests:
// at most a quarter of the time is spent in the database.
func (p *pass) lookAt(ctx context.Context, zones []dueZone) (failed error) {
	for _, z := range zones {
		if p.failed[z.oid] {
			continue
		}
		p.update(func(s *Snapshot) { s.Overdue = z.due })
		err := p.zone(ctx, z)
		var fenced *event.Stop
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil || errors.As(err, &fenced):
			return err
		}
		// What is known of the leaf stays as it was, and the next pass looks again.
		p.closeConn()
		p.failed[z.oid] = true
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
	if all.late > 0 {
		p.late[z.of] = true
	}
	z.zones[z.number] = all.nextLook(began, z.writes, p.cfg.Keep, max(passEvery(p.cfg.Keep), time.Minute))
	return nil
}

// rows is the SQL of a leaf, with its first parameters.
func (p *pass) rows(l *leaf) (rowsSQL, []any) {
	d := p.tables[l.of]
	return newRowsSQL(l.name, d.oid, d.id, d.at, p.cfg.Keep > 0), []any{p.cfg.Slot, p.cfg.Epoch, d.oids, d.names}
}
