// One poll of status --watch: of the relay, else of the database.

package status

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/client"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// snapshot is the relay's status at one time or, when it does not answer, what the database knows.
type snapshot struct {
	at          time.Time
	status      *ops.Status
	noAnswer    error           // why there is no status
	database    *databaseStatus // nil: the database has not answered
	databaseErr error           // why it has not; nil: not yet
}

// The states of a relay that does not answer, in addition to ops.StateStopped.
const (
	stateNotAnswering = "not answering" // the slot is active
	stateUnknown      = "unknown"       // the database does not answer either
)

// stateText is the state, and why.
func (s *snapshot) stateText() (state, why string) {
	switch {
	case s.status != nil:
		return s.status.State, s.status.Why
	case s.database != nil:
		return s.database.State, s.database.Why
	case s.databaseErr != nil:
		return stateUnknown, "the relay " + s.relayText() + "; nor does the database: " + s.databaseErr.Error()
	}
	return stateUnknown, "the relay " + s.relayText() + "; the database is being asked"
}

// relayText explains why there is no status.
func (s *snapshot) relayText() string {
	var answered *client.AnswerError
	if errors.As(s.noAnswer, &answered) {
		return "does not answer with its status: " + answered.Text
	}
	return "does not answer: " + s.noAnswer.Error()
}

// json is what --json prints of it.
func (s *snapshot) json() any {
	switch {
	case s.status != nil:
		return s.status
	case s.database != nil:
		return s.database
	}
	state, why := s.stateText()
	return struct {
		State string    `json:"state"`
		Why   string    `json:"why"`
		Now   time.Time `json:"now"`
		Relay string    `json:"relay"`
	}{state, why, s.at.UTC(), s.relayText()}
}

const (
	// The database is polled seldom, and less often when it is slow: each poll counts rows.
	minDatabaseInterval = 5 * time.Second
	databaseShare       = 10 // of the time between two queries, one part for the query
)

// databasePoll queries the database in the background, so that a silent one blocks nothing.
type databasePoll struct {
	ask func(context.Context) (*databaseStatus, error)

	mu   sync.Mutex
	view *databaseStatus
	err  error
	busy bool
	next time.Time
}

// latest is its last answer. A new query is started when it is time.
func (d *databasePoll) latest(ctx context.Context) (*databaseStatus, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); !d.busy && !now.Before(d.next) {
		d.busy = true
		go d.poll(ctx, now)
	}
	return d.view, d.err
}

func (d *databasePoll) poll(ctx context.Context, began time.Time) {
	within, cancel := context.WithTimeout(ctx, command.DatabaseTimeout)
	defer cancel()
	view, err := d.ask(within)
	d.mu.Lock()
	defer d.mu.Unlock()
	took := time.Since(began)
	d.view, d.err, d.busy, d.next = view, err, false, began.Add(max(minDatabaseInterval, databaseShare*took))
}

// reset forgets the answer, so that the next time the relay is silent begins with a new query.
func (d *databasePoll) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.view, d.err, d.next = nil, nil, time.Time{}
}
