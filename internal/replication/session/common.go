package session

import (
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Shared is what the sessions of one process have in common: it outlives each of them.
type Shared struct {
	Cfg    *source.Config
	Pool   *pgxpool.Pool
	Status *survey.Status

	Segment  uint64          // size in bytes of a WAL file, when the newest session began
	warned   bool            // of a message with our prefix that is not transactional; the reader's
	WarnedOf map[string]bool // what the relay will stop at, by its text; the monitor's
	// position of the server at the last check that found publication and tables in order; 0: none
	LastGood atomic.Uint64
}
