package sim

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
)

var errSession = errors.New("the session was lost")

// session is a replication session: its process holds the slot.
type session struct {
	*life
	start   pglogrepl.LSN
	ctx     context.Context
	cancel  context.CancelFunc
	reading context.Context // ends before the rest in a stop
	endRead context.CancelFunc
	stop    chan struct{} // closed: reading ends at the next commit
}

// seize is replication's: it stands by until the slot is free, and leads.
func (l *life) seize() (*session, error) {
	for {
		if !l.waitWhilePaused(l.ctx) {
			return nil, errKilled
		}
		w := l.w
		w.mu.Lock()
		changed, epoch := w.changed, w.epoch
		var s *session
		if w.holder == nil && !w.down {
			s = &session{life: l, stop: make(chan struct{})}
			s.ctx, s.cancel = context.WithCancel(l.ctx) //nolint:fatcontext // of this session alone
			s.reading, s.endRead = context.WithCancel(s.ctx)
			w.holder = s
			s.start = w.confirmed // START_REPLICATION
		}
		w.mu.Unlock()
		if s == nil {
			if l.term != nil && l.term.epoch != epoch { // another relay leads
				l.term.end()
				l.term = nil
			}
			select {
			case <-changed:
			case <-l.stopping:
				return nil, errStopped
			case <-l.ctx.Done():
				return nil, errKilled
			}
			if !slept(l.ctx, l.dice.upTo(pick(l.dice, time.Millisecond, 250*time.Millisecond))) {
				return nil, errKilled
			}
			continue
		}
		if err := l.lead(s); err != nil {
			s.release()
			return nil, err
		}
		return s, nil
	}
}

// lead raises the epoch, unless nobody led since this process did.
func (l *life) lead(s *session) error {
	w := l.w
	pause := func() bool { return slept(l.ctx, l.dice.about(w.speed[theReporter])) && l.waitWhilePaused(l.ctx) }
	if !pause() {
		return errKilled
	}
	w.mu.Lock()
	epoch := w.epoch
	w.mu.Unlock()
	if l.term != nil && l.term.epoch == epoch {
		return nil
	}
	l.term.end()
	l.term = nil
	w.mu.Lock()
	epoch = w.db.RaiseEpoch(slot)
	w.epoch = epoch
	w.noteLocked(l.name, nil, "raises the epoch to %d", epoch)
	w.mu.Unlock()
	if !pause() {
		return errKilled
	}
	w.mu.Lock()
	holds, start := w.holder == s, w.confirmed
	w.mu.Unlock()
	if !holds {
		return errHolder
	}
	t, err := l.newTerm(epoch, start)
	if err != nil {
		if l.ctx.Err() == nil && errors.Is(err, errLost) {
			return errSession // it is tried again
		}
		return err
	}
	l.term = t
	return nil
}

// release gives the slot back.
func (s *session) release() {
	s.cancel()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.w.holder == s {
		s.w.holder = nil
		s.w.change()
	}
}

// run is Session.Run of package session: it streams until the session ends.
func (s *session) run() error {
	readerDone, reporterDone := make(chan error, 1), make(chan struct{})
	go func() { readerDone <- s.read() }()
	go func() {
		defer close(reporterDone)
		s.reports()
	}()
	err := s.attend(readerDone)
	s.cancel()
	<-reporterDone
	if !errors.Is(err, errStopped) {
		<-readerDone
	}
	s.term.line.Disconnected()
	return err
}

func (s *session) attend(readerDone chan error) error {
	select {
	case <-s.stopping:
		return s.finish(readerDone)
	case <-s.term.done:
		readAgain(readerDone, s)
		return s.term.err
	case err := <-readerDone:
		readerDone <- err
		return err
	}
}

// readAgain ends the reader, and leaves its error for run.
func readAgain(readerDone chan error, s *session) {
	s.cancel()
	readerDone <- <-readerDone
}

// finish is a clean stop: reading ends at a commit, or at half the grace; what was read is settled
// and reported.
func (s *session) finish(readerDone chan error) error {
	w, t := s.w, s.term
	w.note(t.name, nil, "stops")
	close(s.stop)
	half := time.AfterFunc(s.grace/2, s.endRead)
	defer half.Stop()
	<-readerDone
	ctx, cancel := context.WithTimeout(s.ctx, s.grace)
	defer cancel()
	t.Stopping()
	err := t.WaitSettled(ctx)
	switch {
	case err == nil:
		lsn := t.line.Watermark().LSN
		if slept(s.ctx, w.speed[theReporter]) && s.waitWhilePaused(s.ctx) && s.write(lsn) {
			w.note(t.name, nil, "has stopped, at %s", lsn)
			t.checkNoted()
		}
	case s.ctx.Err() == nil:
		w.note(t.name, nil, "the stop is cut: %v; %+v %+v", err, t.line.Snapshot(), t.retryTable.Snapshot())
		w.checkCut(t)
	}
	return errStopped
}

// write is a report that arrives; false when the session is over.
func (s *session) write(lsn pglogrepl.LSN) bool {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder != s {
		return false
	}
	// a newer leader has raised it, and lost the slot again: our next raise of the flush limit
	// finds out
	if s.term.epoch != w.epoch {
		w.loseSession()
		return false
	}
	w.report(s.term.name, lsn)
	return true
}

// reports is the reporter.
func (s *session) reports() {
	w, line := s.w, s.term.line
	d := newDice(s.term.dice.next(), 7)
	for {
		timer := time.NewTimer(time.Second)
		select {
		case <-line.Moved():
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if !s.waitWhilePaused(s.ctx) {
			return
		}
		lsn := line.Watermark().LSN
		if !slept(s.ctx, d.about(w.speed[theReporter])) || !s.write(lsn) {
			return
		}
	}
}

// read is the reader: it gives the line what the server sends, from the slot's position on.
func (s *session) read() error {
	w, line := s.w, s.term.line
	defer line.Wake(true)
	d := newDice(s.term.dice.next(), 8)
	at := s.start
	for _, tx := range w.txs {
		if tx.end <= s.start {
			continue
		}
		if err := s.await(d, tx, at); err != nil {
			return err
		}
		if err := s.send(d, tx); err != nil {
			return err
		}
		at = tx.end
		if tx.keepalive > 0 && d.in(500) {
			w.sent(tx.keepalive)
			line.Keepalive(tx.keepalive)
			at = tx.keepalive
		}
	}
	line.Wake(true)
	select {
	case <-s.stop:
		return errStopped
	case <-s.reading.Done():
		return errSession
	}
}

// sent notes a position that the line may report.
func (w *world) sent(lsn pglogrepl.LSN) {
	w.mu.Lock()
	w.positions[lsn] = true
	w.mu.Unlock()
}

// await waits until a transaction is committed.
func (s *session) await(d *dice, tx *tx, at pglogrepl.LSN) error {
	for {
		s.w.mu.Lock()
		in, changed := time.Until(s.w.began.Add(tx.at)), s.w.changed
		if tx.n >= s.w.opened {
			in = time.Hour
		}
		s.w.mu.Unlock()
		if in <= 0 && s.reading.Err() == nil {
			select {
			case <-s.stop:
				return errStopped
			default:
				return nil
			}
		}
		s.term.line.Wake(true)
		keepalive := d.upTo(20 * time.Second)
		timer := time.NewTimer(min(in, keepalive))
		select {
		case <-timer.C:
			if keepalive < in {
				s.w.sent(at)
				s.term.line.Keepalive(at)
			}
		case <-changed:
			timer.Stop()
		case <-s.stop:
			timer.Stop()
			return errStopped
		case <-s.reading.Done():
			timer.Stop()
			return errSession
		}
	}
}

// send gives the line one transaction.
func (s *session) send(d *dice, tx *tx) error {
	w, line := s.w, s.term.line
	pause := func() bool {
		if d.in(500) {
			return s.waitWhilePaused(s.reading)
		}
		line.Wake(false)
		return slept(s.reading, d.about(w.speed[theReader])) && s.waitWhilePaused(s.reading)
	}
	if !pause() {
		return errSession
	}
	w.step()
	if err := line.Begin(tx.commit, uint32(tx.n+1)); err != nil {
		w.fail(nil, "%s begins tx%d: %v", s.term.name, tx.n, err)
		return err
	}
	for _, e := range tx.events {
		if !pause() {
			return errSession
		}
		ev := e.made
		buf := append([]byte(nil), ev.Payload...)
		ev.Payload = buf
		err := line.Event(s.reading, &ev)
		for i := range buf { // the reader's bytes are the decoder's again
			buf[i] = '#'
		}
		if err != nil {
			if s.reading.Err() == nil {
				w.fail(e, "%s reads %s: %v", s.term.name, e, err)
			}
			return errSession
		}
	}
	if !pause() {
		return errSession
	}
	w.sent(tx.end)
	line.Commit(tx.end)
	return nil
}
