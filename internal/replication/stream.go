// Package replication is the PostgreSQL side of the relay: the life of one slot. A Stream prepares
// the slot, stands by while another relay holds it, leads, and starts again after every lost
// session. The packages below it do the parts.
package replication

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
)

// Stream reads one slot for as long as the process lives: it prepares the slot, stands by while
// another relay holds it, leads when it is free, and goes on after every lost session.
//
// Run owns everything below it but Survey, which goes on after it. One term is one epoch: a line
// with its lanes, kept over lost sessions and discarded when another relay led in between.
type Stream struct {
	cfg    *source.Config
	pool   *pgxpool.Pool
	tables []string // names of the outbox tables, quoted; Run fills in their OIDs elsewhere

	status *survey.Status  // what the outside may ask
	common *session.Shared // with the sessions

	started       time.Time
	everConnected bool
	sessions      int
	said          string  // the last reason for waiting that was logged
	visitor       visitor // that holds the slot
	ended         string  // what an operator decides with, when Run ended for good
	durable       durable // what the database certainly has, as of the last session
}

// New checks the configuration and makes the pool; it does not connect.
func New(cfg source.Config) (*Stream, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Primary = new(source.Primary)
	pool, err := source.ConnectPool(&cfg)
	if err != nil {
		return nil, err
	}
	cfg.Primary.Changed = pool.Reset
	seen := new(survey.Status)
	return &Stream{
		cfg: &cfg, pool: pool, tables: cfg.QuotedTables(), status: seen,
		common: &session.Shared{Cfg: &cfg, Pool: pool, Status: seen, WarnedOf: map[string]bool{}},
	}, nil
}

// Pool is the connection pool that everything but the stream uses, until Close.
func (s *Stream) Pool() *pgxpool.Pool { return s.pool }

// Snapshot is what the stream does now. Anyone may ask, also before Run.
func (s *Stream) Snapshot() survey.Snapshot { return s.status.Snapshot() }

// Survey asks what only operators want to know, in every phase and after Run has returned, until
// ctx is done.
func (s *Stream) Survey(ctx context.Context) error {
	survey.Run(ctx, s.pool, s.cfg, s.status, s.tables)
	return nil
}

// Close ends the pool, after Run and Survey: a relay that has stopped, and stays up to say so,
// still asks how its slot stands.
func (s *Stream) Close() { source.ClosePool(s.pool) }

// wait shows and logs why the relay is not streaming; the same reason is logged once.
func (s *Stream) wait(why string) {
	s.status.Enter(survey.Waiting, why)
	if why != s.said {
		s.cfg.Log.Warn("waiting for PostgreSQL", zap.String("reason", why), zap.String("slot", s.cfg.Slot))
		s.said = why
	}
}

var errPrepareAgain = errors.New("the slot's record changed: prepare again")
