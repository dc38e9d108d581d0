// Whether the WAL between two positions has anything that somebody must read: what an idle server
// writes by itself does not count.

package source

import "github.com/jackc/pglogrepl"

// WalNoise is more bytes than an idle server writes after the last commit: two lists of the running
// transactions and a checkpoint, about 300 bytes, and as much for a raise of a relay's flush limit.
// No reader needs to read that.
const WalNoise = 2 << 10

// WALBeyond reports whether something was written between two positions that somebody may have to
// read. It is not the server's noise, nor the rest of a file that was left empty: with
// archive_timeout an idle server begins the next one, once. segment is the size in bytes of a file,
// 0 when it is not known.
func WALBeyond(segment uint64, lsn, end pglogrepl.LSN) bool {
	if end <= lsn+WalNoise {
		return false
	}
	if segment == 0 {
		return true
	}
	next := (uint64(lsn)/segment + 1) * segment
	return uint64(end) < next || uint64(end) > next+WalNoise
}
