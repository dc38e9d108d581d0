// A snapshot: what status --watch has found at one time.

package status

import (
	"fmt"
	"io"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// snapshot is the relay's status at one time or, when it does not answer, what the database knows.
type snapshot struct {
	at          time.Time
	status      *ops.Status
	noAnswer    error           // why there is no status
	database    *databaseStatus // nil: the database does not answer either
	databaseErr error           // why not
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
	}
	return stateUnknown, "the relay " + notAsked(s.noAnswer) + "; nor does the database: " + s.databaseErr.Error()
}

// print prints a snapshot as a line: for pipes, files and programs.
func (s *snapshot) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return output.JSONLine(out, s.json())
	}
	_, err := io.WriteString(out, s.at.UTC().Format(time.RFC3339)+" "+s.line()+"\n")
	return err
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
	}{state, why, s.at.UTC(), notAsked(s.noAnswer)}
}

// line is a snapshot in one line of plain text.
func (s *snapshot) line() string {
	state, why := s.stateText()
	if why != "" {
		state += ": " + why
	}
	switch st := s.status; {
	case st != nil:
		state += fmt.Sprintf(" | %s | lag %s, %s | in flight %s | published %s, %.1f/s | deferred %s | dead %s", st.Role,
			showLag(st.Slot.LagSeconds), showBehind(st), output.Thousands(uint64(st.InFlight.Events)), output.Thousands(st.Totals.Published),
			st.Rates.PublishedPerSecond, output.Thousands(uint64(st.Deferred.Events)), output.Thousands(uint64(st.DeadLetters.Open)))
	case s.database != nil && s.database.SlotExists:
		state += " | slot " + output.Bytes(s.database.LagBytes) + " behind, asked " + output.Age(time.Since(s.database.Now)) + " ago"
	}
	return output.Clean(state)
}
