// The primary that the stream reads: which server it is, and in which lifetime, so that the pool
// does not work on another one.

package source

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
)

// Server identifies a server: a cluster, on a timeline, in one lifetime of its postmaster. Empty
// fields are not known.
type Server struct {
	SystemID string
	Timeline int32
	Started  string // pg_postmaster_start_time, to the microsecond
}

// ServerPosition is a server and the end of its WAL when it was read.
type ServerPosition struct {
	Server
	WAL pglogrepl.LSN
}

// Primary is the server that the stream reads, as of the last connection. It is nil for commands:
// they have no stream.
type Primary struct {
	Server  atomic.Pointer[Server]
	Changed func() // called when it is another server than before, also the first time
	// Wal is the highest position of which this process knows that it was durable there: received
	// or reported.
	Wal atomic.Uint64
	// epoch is that of this process's term; 0: it does not lead.
	epoch atomic.Int64
	mu    sync.Mutex
	// where connections of the pool led to while Server was nil; the zero Server: to several
	pool *Server
}

// Set sets the server that the pool's new connections are compared with. Existing ones may lead to
// another server: the stream's first choice may have been down when they were made. Those of a
// start lead to the same one mostly, and are kept.
func (p *Primary) Set(now Server) {
	if p == nil {
		return
	}
	p.mu.Lock()
	old := cmp.Or(p.Server.Swap(&now), p.pool)
	p.pool = nil
	p.mu.Unlock()
	if p.Changed != nil && (old == nil || *old != now) {
		p.Changed()
	}
}

// poolConnected notes where a new connection of the pool leads, and returns the server that it is
// to be compared with; nil: there is none yet.
func (p *Primary) poolConnected(now Server) *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.Server.Load()
	switch {
	case at != nil:
	case p.pool == nil:
		p.pool = &now
	case *p.pool != now:
		p.pool = &Server{}
	}
	return at
}

// Still returns an error if a connection leads to another server than the one that was set, or to
// another lifetime of it.
func (p *Primary) Still(now Server) error {
	if at := p.Server.Load(); at == nil || *at != now {
		return errRestarted
	}
	return nil
}

// Forget lets the pool use any server: no stream is reading.
func (p *Primary) Forget() { p.Server.Store(nil) }

// Received is the highest position of which this process knows that it was durable there; 0: it has
// read nothing, or there is no stream.
func (p *Primary) Received() pglogrepl.LSN {
	if p == nil {
		return 0
	}
	return pglogrepl.LSN(p.Wal.Load())
}

// Promoted reports whether now is a later timeline of the same server: a standby that was promoted,
// or a copy that was.
func (s Server) Promoted(now Server) bool {
	return s.SystemID != "" && s.SystemID == now.SystemID && now.Timeline > s.Timeline
}

// errPromoted is for the pool until the stream has looked at the promoted server.
var errPromoted = errors.New("the server was promoted: the relay checks it over the replication connection first")

var errRestarted = errors.New("the server was restarted: the relay checks it over the replication connection first")
