// The state of a session, by the goroutine that owns it, and what all sessions of one process
// share.

package session

import (
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/standbys"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// Shared is what the sessions of one process have in common: it outlives each of them.
type Shared struct {
	Cfg    *source.Config
	Pool   *pgxpool.Pool
	Status *survey.Status

	Segment  uint64          // size in bytes of a WAL file, when the newest session began
	Encoding string          // of the database (server_encoding), then
	warned   bool            // of a message with our prefix that is not transactional; the reader's
	WarnedOf map[string]bool // what the relay will stop at, by its text; the monitor's
	// position of the server at the last check that found publication and tables in order; 0: none
	LastGood atomic.Uint64
}

// SetGood records that publication and tables were in order when view was read.
func (s *Shared) SetGood(view *slot.View) {
	s.LastGood.Store(uint64(view.Current))
}

// Good is LastGood as a position.
func (s *Shared) Good() pglogrepl.LSN { return pglogrepl.LSN(s.LastGood.Load()) }

// Session is one START_REPLICATION to its end. The reader owns reads of conn and the decoder, the
// reporter owns writes; the flush limit, the monitor and the watches for silence and for the
// server's shutdown use the pool. Run owns them all but the last, and closes conn.
type Session struct {
	*Shared
	*ShutdownWatch
	t     *Term
	conn  net.Conn
	front *pgproto3.Frontend
	pid   uint32            // of our walsender
	sent  publication.State // what the publication sends, as it is remembered
	wal   uint64            // the end of the server's WAL when the session began

	again LastTransaction // the reader's

	// admitted is the number of events of the current transaction that the line has admitted. It
	// belongs to the reader, and to finish after the reader has ended.
	admitted int

	failover bool // the slot is a failover slot: standbys must have what is reported as settled
	// awaited is the position at which the reader wakes the reporter, once; 0: none
	awaited atomic.Uint64
	onNamed atomic.Uint64 // the last such position that the named standbys have
	wait    standbys.Wait // the monitor's

	Received atomic.Uint64 // highest position received: a commit's end or a keepalive's
	frames   atomic.Uint64 // odd while the reader works on one, even while it waits in Receive
	stopping atomic.Bool   // the reader returns at the next boundary of transactions
	cutAt    atomic.Bool   // it returns at once, wherever it is
	inTx     atomic.Bool
	readDone atomic.Bool // the reader has returned
	final    atomic.Bool // the flush limit is raised for any watermark, at once

	replyNow chan struct{} // the server asked for a report
	kick     chan struct{} // something the reporter reports on may have changed
	raise    chan struct{} // the flush limit is too low

	coalescer *Coalescer // counts the bytes read
}

// New makes a session. watch has begun before START_REPLICATION; sent is what the publication
// sends, with every OID under which rows of our tables may come; from is the position that was
// requested; view is the slot's row before the first report.
func New(s *Shared, watch *ShutdownWatch, t *Term, h *pgconn.HijackedConn, pace *Coalescer, sent publication.State, from pglogrepl.LSN, view *slot.View) *Session {
	var again LastTransaction
	// what begins to commit there or later is sent
	if t.newest.commit >= max(view.ConfirmedFlush, from) {
		again = t.newest
		again.from = max(view.ConfirmedFlush, from)
	}
	return &Session{
		Shared: s, ShutdownWatch: watch, t: t, conn: h.Conn, front: h.Frontend, pid: source.BackendPID(h.CustomData), coalescer: pace,
		sent: sent, wal: uint64(view.Current), again: again, failover: view.Failover,
		replyNow: make(chan struct{}, 1), kick: make(chan struct{}, 1), raise: make(chan struct{}, 1),
	}
}

// ErrServerStopping ends a session, or the steps to one, because the server is shutting down.
var ErrServerStopping = errors.New("the server is shutting down")

var (
	errReadStopped = errors.New("reading stopped at a transaction boundary")
	errReadCut     = errors.New("reading stopped inside a transaction")
)

// signal wakes the one goroutine that waits on a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// ErrCleanStop says that a session ended as asked: what was read is settled and reported.
var ErrCleanStop = errors.New("stopped as asked")
