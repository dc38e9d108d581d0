// The last transaction that was read has to come again when the stream is read again: otherwise the
// server was rolled back while it ran, and the relay stops.

package session

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
)

// LastTransaction checks that a stream that is read again contains the transaction that was read
// last, if only in part: its first rows may have been published. By its position alone, a different
// transaction in its place would be skipped as a repeat. This happens with a server that was rolled
// back while running, such as a virtual machine resumed with its memory. The zero value expects
// nothing.
type LastTransaction struct {
	commit pglogrepl.LSN // start of its commit record; 0: seen, or none is to come again
	xid    uint32
	from   pglogrepl.LSN // where the stream that is read again begins
}

// begin is called for each transaction in the stream.
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

// passes reports whether a keepalive may be used: until the transaction was seen again, a keepalive
// must not confirm anything before it.
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
	return c.RolledBack(fmt.Sprintf("transaction %d, which this relay had read at %s, is no longer in the WAL (now at %s)", a.xid, a.commit, at), a.from, max(a.commit, at))
}
