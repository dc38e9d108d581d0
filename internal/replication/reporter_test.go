package replication

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// reporterTest is a reporter whose reports nobody reads, over a line that the test moves by hand.
type reporterTest struct {
	*testing.T
	reporter
	line *recorder
}

func newReporter(t *testing.T) *reporterTest {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	go io.Copy(io.Discard, theirs)
	line := newRecorder(50)
	tm := &term{line: line}
	tm.ceiling.Store(50)
	tm.reported.Store(50)
	se := &session{wal: 1 << 40, Stream: &Stream{cfg: Config{WALSenderTimeout: 1 << 40}}, t: tm, conn: ours, raise: make(chan struct{}, 1), gulp: &gulp{}}
	return &reporterTest{T: t, line: line, reporter: reporter{session: se, flush: outbox.Watermark{LSN: 50}}}
}

// settle moves the watermark to at, by a transaction of ours or by a keepalive.
func (r *reporterTest) settle(at pglogrepl.LSN, own bool) {
	tx := &transaction{end: at, settled: true}
	if own {
		tx.events = 1
	}
	r.line.pass(tx)
}

// step is what the reporter does when the watermark or the ceiling moved.
func (r *reporterTest) step() {
	r.Helper()
	if err := r.reporter.step(r.Context(), false); err != nil {
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

// Under load the watermark of the moment is always above any ceiling that is durable yet. Reports go on all the same, with
// the watermark the ceiling was raised for.
func TestReportsGoOnUnderLoad(t *testing.T) {
	r := newReporter(t)
	r.settle(100, true)
	r.step()
	r.wantRaise()
	for at := pglogrepl.LSN(200); at <= 500; at += 100 {
		r.settle(at, true)                 // before the raise was answered
		r.t.ceiling.Store(uint64(at - 50)) // where the WAL was when it was
		r.step()
		if r.sent.LSN != at-100 {
			t.Fatalf("reported %s, want %s", r.sent.LSN, at-100)
		}
		r.wantRaise()
	}
}

// The WAL moved on before anybody looked: the event is below the ceiling, the watermark is not.
func TestEventBelowTheCeilingIsReported(t *testing.T) {
	r := newReporter(t)
	r.raised = time.Now() // no raise is due for its own sake
	r.t.ceiling.Store(100)
	r.settle(90, true)
	r.settle(110, false)
	r.step()
	r.wantRaise()
	r.t.ceiling.Store(120)
	r.step()
	if r.sent.LSN != 110 {
		t.Errorf("reported %s", r.sent.LSN)
	}
}

func TestIdleMovesWaitForTheTimer(t *testing.T) {
	r := newReporter(t)
	r.t.ceiling.Store(100)
	r.settle(90, false)
	r.step()
	if r.sent.LSN != 0 {
		t.Errorf("reported %s at once", r.sent.LSN)
	}
	if err := r.reporter.step(t.Context(), true); err != nil || r.sent.LSN != 90 {
		t.Errorf("reported %s with the timer (%v)", r.sent.LSN, err)
	}
	r.settle(110, false)
	r.step() // the first raise of a session
	r.wantRaise()
	r.t.ceiling.Store(120)
	r.step()
	r.settle(130, false)
	r.step()
	r.wantNoRaise()
	r.settle(120+idleRaiseBytes, false)
	r.step()
	r.wantRaise()
	r.t.ceiling.Store(200 + idleRaiseBytes)
	r.step()
	r.raised = r.raised.Add(-idleRaiseEvery)
	r.settle(1000+idleRaiseBytes, false) // what the raise itself wrote
	r.step()
	r.wantNoRaise()
	r.settle(201+idleRaiseBytes+walNoise, false)
	r.step()
	r.wantRaise()
}

// With archive_timeout the server begins a file of WAL after each raise, which is a commit: that is no reason for the next.
func TestRaiseIsNotAnsweredByTheFileThatItBegan(t *testing.T) {
	for _, size := range []uint64{idleRaiseBytes / 16, idleRaiseBytes, 4 * idleRaiseBytes} {
		r := newReporter(t)
		r.segment = size
		r.settle(200, false)
		r.step() // the first raise of a session
		r.wantRaise()
		r.t.ceiling.Store(300)
		r.step()
		r.raised = r.raised.Add(-idleRaiseEvery)
		next := pglogrepl.LSN(size)
		for _, at := range []pglogrepl.LSN{next, next + 40, next + walNoise} {
			r.settle(at, false)
			r.step()
			r.wantNoRaise()
		}
		r.settle(next+walNoise+1, false)
		r.step()
		r.wantRaise()
	}
}

func TestReportOutsideOfItsBoundsEndsTheSession(t *testing.T) {
	for _, c := range []struct{ flush, ceiling, reported, wal pglogrepl.LSN }{{0, 100, 0, 100}, {101, 100, 50, 200}, {49, 100, 50, 100}, {90, 100, 50, 80}} {
		r := newReporter(t)
		r.wal = uint64(c.wal)
		r.flush.LSN = c.flush
		r.t.ceiling.Store(uint64(c.ceiling))
		r.t.reported.Store(uint64(c.reported))
		if err := r.write(); err == nil {
			t.Errorf("%+v was written", c)
		}
	}
}
