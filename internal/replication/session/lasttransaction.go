package session

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
)

// LastTransaction checks that a stream that is read again has the transaction that was read last
// before: by positions alone another one in its place would be skipped as a repeat. It is for a
// server that went back and runs on, as a virtual machine does that is resumed with its memory. The
// zero value has seen all it must.
type LastTransaction struct {
	commit pglogrepl.LSN // start of its commit record; 0: seen, or none is to come again
	xid    uint32
	from   pglogrepl.LSN // where the stream that is read again begins
}

// begin is told of each transaction in the stream.
func (a *LastTransaction) begin(c *source.Config, commit pglogrepl.LSN, xid uint32) error {
	switch {
	case a.commit == 0 || commit < a.commit:
		return nil
	case commit == a.commit && xid == a.xid:
		a.commit = 0
		return nil
	}
	return a.missing(c, commit)
}

// passes tells whether a keepalive may count: until the transaction was seen again nothing before
// it may be confirmed by one.
func (a *LastTransaction) passes(c *source.Config, end pglogrepl.LSN) (bool, error) {
	if a.commit == 0 {
		return true, nil
	}
	if end > a.commit {
		return false, a.missing(c, end)
	}
	return false, nil
}

func (a *LastTransaction) missing(c *source.Config, at pglogrepl.LSN) error {
	return c.RolledBack(fmt.Sprintf("transaction %d, which this relay had read at %s, is not in the WAL any more (now at %s)", a.xid, a.commit, at), a.from, max(a.commit, at))
}
