package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

func drawPlan(t *rapid.T) *plan {
	p := &plan{
		ordering: rapid.SampledFrom([]Ordering{Key, Pipelined}).Draw(t, "ordering"),
		lanes:    rapid.IntRange(1, 4).Draw(t, "lanes"),
		budget:   rapid.IntRange(1, 30).Draw(t, "max_in_flight"),
		bytes:    rapid.SampledFrom([]int64{500, 3000, 256 << 10}).Draw(t, "bytes"),
		seed:     rapid.Uint64().Draw(t, "seed"),
		broken:   rapid.SampledFrom([]int{0, 5, 40}).Draw(t, "broken"),
		refused:  rapid.SampledFrom([]int{0, 2, 30}).Draw(t, "refused"),
		waiting:  rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "waiting"),
		patience: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Hour}).Draw(t, "patience"),
	}
	row := rapid.Custom(func(t *rapid.T) planRow {
		return planRow{
			key:  rapid.IntRange(0, 5).Draw(t, "key"),
			size: rapid.SampledFrom([]int{0, 1, 100, 400, 2000, 10_000, 270_000}).Draw(t, "size"),
		}
	})
	lsn := pglogrepl.LSN(1000)
	for range rapid.IntRange(1, 12).Draw(t, "transactions") {
		tx := planTx{commit: lsn, rows: rapid.SliceOfN(row, 0, 12).Draw(t, "rows")}
		tx.end = tx.commit + 8
		lsn = tx.end // adjacent in WAL
		if rapid.Bool().Draw(t, "keepalive") {
			tx.keepalive = tx.end + 4
			lsn = tx.keepalive
		}
		p.txs = append(p.txs, tx)
	}
	for range rapid.IntRange(0, 4).Draw(t, "cuts") {
		p.cuts = append(p.cuts, planCut{rapid.IntRange(0, 40).Draw(t, "after"), rapid.IntRange(0, 3).Draw(t, "lag")})
	}
	return p
}

// TestLineAgainstDumb: whatever is committed, however often the stream breaks and is sent again,
// the broker breaks, loses confirms or rejects, and the reader loses patience: all is delivered,
// per key in commit order, no event twice unless an outcome of it was unknown, in bounded memory,
// and the watermark never passes an unconfirmed event.
func TestLineAgainstDumb(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var failure string
		synctest.Test(t, func(*testing.T) { failure = p.run() })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func (p *plan) run() string {
	b := newBroker(p)
	b.table = newTable(p.seed)
	b.table.note = b.note
	l := New(Config{Ordering: p.ordering, MaxInFlight: p.budget, MaxInFlightBytes: p.bytes, Sink: b, RetryTable: b.table, MaxWaiting: p.waiting})
	b.table.line = l
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	ended := make(chan error, 3)
	go func() { ended <- l.Run(ctx) }()
	go func() {
		b.table.run(ctx)
		ended <- nil
	}()
	go func() {
		for {
			select {
			case <-l.Moved():
				b.check(l)
			case <-ctx.Done():
				ended <- nil
				return
			}
		}
	}()
	reported := []pglogrepl.LSN{0}
	for _, cut := range append(p.cuts, planCut{after: 1 << 30}) {
		reported = append(reported, l.Watermark().LSN)
		from := reported[max(0, len(reported)-1-cut.lag)]
		if err := p.session(ctx, l, b, from, cut.after); err != nil {
			b.fail("session: %v", err)
		}
	}
	if err := l.WaitSettled(ctx); err != nil {
		b.fail("%d events are not settled after ten minutes", l.Unsettled())
	}
	for deadline := time.Now().Add(10 * time.Minute); b.table.left() > 0; time.Sleep(time.Second) { //nolint:forbidigo // the bubble's time, not ours
		if time.Now().After(deadline) {
			b.fail("%d rows are left after ten minutes", b.table.left())
			break
		}
	}
	synctest.Wait()
	b.check(l)
	b.complete()
	last := p.txs[len(p.txs)-1]
	if got, want := l.Watermark().LSN, max(last.end, last.keepalive); got != want {
		b.fail("watermark %s at the end, want %s", got, want)
	}
	if s := l.Snapshot(); s.Events != 0 || s.Bytes != 0 || charged(l) != 0 || s.ConfirmedAbove != 0 || s.WaitingGroups != 0 || !s.OldestCommit.IsZero() {
		b.fail("left behind: %+v", s)
	}
	for _, ln := range l.all() {
		if len(ln.groups) > 0 || !ln.waiting.none() || ln.special != 0 {
			b.fail("lane %d remembers %d ordering groups, %d of them in a state, and %v", ln.n, len(ln.groups), ln.special, ln.waiting)
		}
	}
	cancel()
	<-ended
	<-ended
	<-ended
	return b.failure
}

// complete checks that each event was delivered, or is a dead letter.
func (b *broker) complete() {
	for i, tx := range b.plan.txs {
		for row := range tx.rows {
			if pos := b.plan.position(i, row); b.delivered[pos] == 0 && !b.table.dead[pos] {
				b.fail("%s is lost", pos)
			}
		}
	}
}

var errCut = errors.New("cut")

// session sends the transactions whose end is behind from, until so many steps are done.
func (p *plan) session(ctx context.Context, l *Line, b *broker, from pglogrepl.LSN, steps int) error {
	defer l.Disconnected()
	step := func() error {
		if steps--; steps < 0 {
			return errCut
		}
		return nil
	}
	for i := range p.txs {
		if p.txs[i].end <= from {
			continue
		}
		err := p.send(ctx, l, i, step)
		if errors.Is(err, errCut) {
			return nil
		}
		if err != nil {
			return err
		}
		b.check(l)
	}
	return nil
}

func (p *plan) send(ctx context.Context, l *Line, i int, step func() error) error {
	tx := p.txs[i]
	if err := l.Begin(tx.commit, uint32(i)); err != nil {
		return err
	}
	for row := range tx.rows {
		if err := step(); err != nil {
			return err
		}
		l.Keepalive(tx.commit) // inside a transaction: nothing
		for patience := p.patience; ; patience *= 2 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			attempt, cancel := context.WithTimeout(ctx, patience)
			ev := p.event(i, row)
			err := l.Event(attempt, ev)
			cancel()
			// the reader's bytes are the decoder's again
			scribble(ev.ID, ev.Payload, ev.Key, ev.Columns[2])
			if err == nil {
				break
			}
		}
	}
	if err := step(); err != nil {
		return err
	}
	l.Commit(tx.end)
	l.Wake(true)
	if tx.keepalive > 0 {
		l.Keepalive(tx.keepalive)
	}
	return nil
}

func scribble(fields ...[]byte) {
	for _, f := range fields {
		for i := range f {
			f[i] = '#'
		}
	}
}
