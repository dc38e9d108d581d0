package source

import (
	"errors"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
)

// Server is who answers at the other end: a cluster, on a timeline, in one life of its postmaster.
// Empty fields are not known.
type Server struct {
	SystemID string
	Timeline int32
	Started  string // pg_postmaster_start_time, to the microsecond
}

// ServerPosition is a server, and where its WAL ended when it was asked.
type ServerPosition struct {
	Server
	WAL pglogrepl.LSN
}

// Primary is the server that the stream reads, as it was met last. nil is for commands: they have
// no stream.
type Primary struct {
	Met     atomic.Pointer[Server]
	Changed func() // called when it is another server than before, also the first time
	// Wal is the highest position of which this process knows that it was durable there: received
	// or reported.
	Wal atomic.Uint64
}

// Meet sets what the pool's new connections are compared with. Those that it has may lead
// elsewhere: the stream's first choice may have been away while they were made.
func (h *Primary) Meet(id Server) {
	if h == nil {
		return
	}
	if old := h.Met.Swap(&id); h.Changed != nil && (old == nil || *old != id) {
		h.Changed()
	}
}

// Still is an error when a connection leads to another server, or another life of it, than the one
// that was met.
func (h *Primary) Still(id Server) error {
	if at := h.Met.Load(); at == nil || *at != id {
		return errRestarted
	}
	return nil
}

// Forget lets the pool work on whatever server there is: no stream reads one any more.
func (h *Primary) Forget() { h.Met.Store(nil) }

var errRestarted = errors.New("the server was restarted: the relay checks it over the replication connection first")
