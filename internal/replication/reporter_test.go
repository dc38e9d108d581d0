package replication

import (
	"io"
	"net"
	"testing"

	"github.com/jackc/pglogrepl"
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
	go io.Copy(io.Discard, theirs) //nolint:errcheck // it ends with the pipe
	line := newRecorder(50)
	tm := &term{line: line}
	tm.ceiling.Store(50)
	tm.reported.Store(50)
	se := &session{Stream: &Stream{cfg: Config{WALSenderTimeout: 1 << 40}}, t: tm, conn: ours, raise: make(chan struct{}, 1)}
	return &reporterTest{T: t, line: line, reporter: reporter{session: se, flush: mark{at: 50}}}
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
