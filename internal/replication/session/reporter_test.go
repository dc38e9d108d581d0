package session

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// reporterTest is a reporter whose reports nobody reads, over a line that the test moves by hand.
type reporterTest struct {
	*testing.T
	reporter
	line *replicationtest.Recorder
}

func newReporter(t *testing.T) *reporterTest {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	go io.Copy(io.Discard, theirs)
	line := replicationtest.NewRecorder(50)
	tm := &Term{Line: line}
	tm.FlushLimit.Store(50)
	tm.Reported.Store(50)
	se := &Session{walEnd: 1 << 40, Shared: &Shared{Cfg: &source.Config{WALSenderTimeout: 1 << 40}}, term: tm, conn: ours, raise: make(chan struct{}, 1), coalescer: &Coalescer{}}
	return &reporterTest{T: t, line: line, reporter: reporter{Session: se, flush: event.Watermark{LSN: 50}}}
}

// Settle moves the watermark to at, by a transaction of ours or by a keepalive.
func (r *reporterTest) Settle(at pglogrepl.LSN, own bool) {
	tx := &replicationtest.Transaction{End: at, Settled: true}
	if own {
		tx.Events = 1
	}
	r.line.Pass(tx)
}

// step is what the reporter does when the watermark or the flush limit moved.
func (r *reporterTest) step() {
	r.Helper()
	if err := r.reporter.reportOnce(r.Context(), false); err != nil {
		r.Fatal(err)
	}
}

func (r *reporterTest) wantRaise() {
	r.Helper()
	select {
	case <-r.raise:
	default:
		r.Error("no raise was asked for")
	}
}

func (r *reporterTest) wantNoRaise() {
	r.Helper()
	select {
	case <-r.raise:
		r.Error("a raise was asked for")
	default:
	}
}

// Under load the watermark of the moment is always above any flush limit that is durable yet.
// Reports go on all the same, with the watermark the flush limit was raised for.
func TestReportsGoOnUnderLoad(t *testing.T) {
	r := newReporter(t)
	r.Settle(100, true)
	r.step()
	r.wantRaise()
	for at := pglogrepl.LSN(200); at <= 500; at += 100 {
		r.Settle(at, true) // before the raise was answered
		r.answer(at - 50)  // where the WAL was when it was
		r.step()
		if r.lastSent.LSN != at-100 {
			t.Fatalf("reported %s, want %s", r.lastSent.LSN, at-100)
		}
		r.wantRaise()
	}
}

// The WAL moved on before anybody looked: the event is below the flush limit, the watermark is not.
func TestEventBelowTheFlushLimitIsReported(t *testing.T) {
	r := newReporter(t)
	r.raiseAskedAt = time.Now() // no raise is due for its own sake
	r.term.FlushLimit.Store(100)
	r.Settle(90, true)
	r.Settle(110, false)
	r.step()
	r.wantRaise()
	r.answer(120)
	r.step()
	if r.lastSent.LSN != 110 {
		t.Errorf("reported %s", r.lastSent.LSN)
	}
}

// An event that is settled below the flush limit is reported once its row is recorded as sent.
func TestReportWaitsForTheRecord(t *testing.T) {
	r := newReporter(t)
	r.term.FlushLimit.Store(1000)
	r.term.recorded.Store(90)
	r.Settle(90, true)
	r.wantReported(90)
	r.wantNoRaise()
	r.Settle(100, true)
	r.wantReported(90)
	r.wantRaise()
	r.answer(1000)
	r.wantReported(100)
	r.Settle(110, false) // no event of ours: there is nothing to record
	r.wantReported(110)
}

func TestIdleMovesWaitForTheTimer(t *testing.T) {
	r := newReporter(t)
	r.term.FlushLimit.Store(100)
	r.Settle(90, false)
	r.step()
	if r.lastSent.LSN != 0 {
		t.Errorf("reported %s at once", r.lastSent.LSN)
	}
	if err := r.reporter.reportOnce(t.Context(), true); err != nil || r.lastSent.LSN != 90 {
		t.Errorf("reported %s with the timer (%v)", r.lastSent.LSN, err)
	}
	r.Settle(110, false)
	r.step() // the first raise of a session
	r.wantRaise()
	r.term.FlushLimit.Store(120)
	r.step()
	r.Settle(130, false)
	r.step()
	r.wantNoRaise()
	r.Settle(120+idleRaiseBytes, false)
	r.step()
	r.wantRaise()
	r.term.FlushLimit.Store(200 + idleRaiseBytes)
	r.step()
	r.raiseAskedAt = r.raiseAskedAt.Add(-idleRaiseEvery)
	r.Settle(1000+idleRaiseBytes, false) // what the raise itself wrote
	r.step()
	r.wantNoRaise()
	r.Settle(201+idleRaiseBytes+source.WalNoise, false)
	r.step()
	r.wantRaise()
}

// With archive_timeout the server begins a file of WAL after each raise, which is a commit: that is
// no reason for the next.
func TestRaiseIsNotAnsweredByTheFileThatItBegan(t *testing.T) {
	for _, size := range []uint64{idleRaiseBytes / 16, idleRaiseBytes, 4 * idleRaiseBytes} {
		r := newReporter(t)
		r.Segment = size
		r.Settle(200, false)
		r.step() // the first raise of a session
		r.wantRaise()
		r.term.FlushLimit.Store(300)
		r.step()
		r.raiseAskedAt = r.raiseAskedAt.Add(-idleRaiseEvery)
		next := pglogrepl.LSN(size)
		for _, at := range []pglogrepl.LSN{next, next + 40, next + source.WalNoise} {
			r.Settle(at, false)
			r.step()
			r.wantNoRaise()
		}
		r.Settle(next+source.WalNoise+1, false)
		r.step()
		r.wantRaise()
	}
}

// answer is what a raise leaves that was asked for by the last step: its flush limit, and the rows
// of what was settled by then are recorded.
func (r *reporterTest) answer(flushLimit pglogrepl.LSN) {
	r.term.FlushLimit.Store(uint64(flushLimit))
	r.term.recorded.Store(uint64(r.candidate.Own))
}

// raisedTo is what a raise with a failover slot leaves: everything below settled was settled when
// it was sent, the WAL ended at end after it.
func (r *reporterTest) raisedTo(settled, end pglogrepl.LSN) {
	r.term.FlushLimit.Store(uint64(end))
	r.term.recorded.Store(uint64(settled))
	r.term.onStandbys.Store(&onStandbys{settled: uint64(settled), passed: uint64(end)})
	r.awaited.Store(uint64(end))
}

func (r *reporterTest) wantReported(at pglogrepl.LSN) {
	r.Helper()
	r.step()
	if r.flush.LSN != at {
		r.Errorf("may report %s, want %s", r.flush.LSN, at)
	}
}

// With a failover slot an event, which may be settled by its row alone, is reported when the stream
// has passed the position that was read after the raise: then the standbys have the row.
func TestReportWaitsForTheStandbys(t *testing.T) {
	r := newReporter(t)
	r.failover, r.lookAgain = true, make(chan struct{}, 1)
	r.Settle(100, true)
	r.step()
	r.wantRaise()
	r.term.FlushLimit.Store(150) // committed, and the end of the WAL not read yet
	r.wantReported(50)
	r.raisedTo(100, 160)
	r.Settle(120, true) // below the flush limit, and settled after the raise was sent
	for _, received := range []pglogrepl.LSN{100, 120, 159} {
		r.noteReceived(received)
		r.wantReported(50)
	}
	r.wantNoRaise() // one is under way
	select {
	case <-r.lookAgain:
		t.Error("the reporter was woken too early")
	default:
	}
	r.noteReceived(160)
	select {
	case <-r.lookAgain:
	default:
		t.Error("the reporter was not woken")
	}
	r.wantReported(100)
	r.wantRaise() // for the next event
	r.raisedTo(120, 200)
	r.wantReported(100)
	r.Settle(201, false) // a keepalive of the raise itself
	r.noteReceived(201)
	r.wantReported(120)
	for range 2 { // and no raise for its own sake, again and again
		r.raiseAskedAt = r.raiseAskedAt.Add(-idleRaiseEvery)
		r.step()
		r.wantNoRaise()
	}
}

// Without a named standby a failover slot is reported as any other one, also far from the end of
// the WAL.
func TestCatchUpWithoutStandbysIsReported(t *testing.T) {
	r := newReporter(t)
	r.failover = true
	r.Settle(100, true)
	r.step()
	r.wantRaise()
	r.term.FlushLimit.Store(1 << 30) // the end of the WAL, of which hardly anything was read
	for at := pglogrepl.LSN(200); at <= 500; at += 100 {
		r.Settle(at, true) // before the raise was answered
		r.raisedTo(at-100, 1<<30)
		r.awaited.Store(0)
		r.term.onStandbys.Store(&onStandbys{settled: uint64(at - 100)})
		r.step()
		if r.lastSent.LSN != at-100 {
			t.Fatalf("reported %s, want %s", r.lastSent.LSN, at-100)
		}
		r.wantRaise()
	}
}

func TestReportOutsideOfItsBoundsEndsTheSession(t *testing.T) {
	for _, c := range []struct{ flush, flushLimit, reported, wal pglogrepl.LSN }{{0, 100, 0, 100}, {101, 100, 50, 200}, {49, 100, 50, 100}, {90, 100, 50, 80}} {
		r := newReporter(t)
		r.walEnd = uint64(c.wal)
		r.flush.LSN = c.flush
		r.term.FlushLimit.Store(uint64(c.flushLimit))
		r.term.Reported.Store(uint64(c.reported))
		if err := r.writeReport(); err == nil {
			t.Errorf("%+v was written", c)
		}
	}
}
