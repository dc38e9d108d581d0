// The age of rows whose commit time is not known.

package retention

import "time"

// samples say of some moments, by the database's clock, below which transaction everything had
// ended. So a row whose transaction is below is at least as old as the moment.
//
// The server forgets commit timestamps: of what was committed before it kept them, and of what all
// databases have frozen, which a busy server does within hours. Such rows are of unknown age, and
// not old: they count from when the leader saw them.
type samples []sample

type sample struct {
	at  time.Time
	xid int64
}

// add adds a moment. It keeps about 64 of them in the time that rows are kept for, and one that is
// older. A clock that was set back makes the later ones wrong.
func (s *samples) add(at time.Time, xid int64, keep time.Duration) {
	list := *s
	for len(list) > 0 && list[len(list)-1].at.After(at) {
		list = list[:len(list)-1]
	}
	for len(list) > 1 && !list[1].at.After(at.Add(-keep)) {
		list = list[1:]
	}
	if len(list) == 0 || at.Sub(list[len(list)-1].at) >= keep/64 {
		list = append(list, sample{at: at, xid: xid})
	}
	*s = list
}

// below is the transaction below which every row is old enough at a time; 0: of none it is known.
func (s samples) below(at time.Time, keep time.Duration) (xid int64) {
	for _, one := range s {
		if !one.at.After(at.Add(-keep)) {
			xid = one.xid
		}
	}
	return xid
}
