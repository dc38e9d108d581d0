// The positions of recovered events.

package recovery

import (
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Commit records begin at multiples of 8, so the seven positions between two of them are no
// commit's. Each has as many events as cdc_position has digits for.
const (
	perCommit = 100_000_000
	commits   = 7
)

// positions are those of one run: they rise with the rank of a row, and are below base + 8.
type positions struct{ base pglogrepl.LSN } // a multiple of 8

// positionsBelow are just below a position from which on commits are sent.
func positionsBelow(at pglogrepl.LSN) positions { return positions{at&^7 - 8} }

// of returns the position of the row of that rank, from 0.
func (p positions) of(rank int64) (event.Position, error) {
	if rank >= perCommit*commits {
		return event.Position{}, fmt.Errorf("more than %d rows cannot be copied at once: narrow them with a WHERE", perCommit*commits)
	}
	return event.Position{Commit: p.base + 1 + pglogrepl.LSN(rank/perCommit), Index: uint32(rank % perCommit)}, nil
}

func (p positions) first() pglogrepl.LSN { return p.base + 1 }
func (p positions) last() pglogrepl.LSN  { return p.base + commits }
