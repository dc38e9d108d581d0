// The layout of the two messages of the replication stream, XLogData and keepalive, for the reader.

package session

import (
	"encoding/binary"
	"time"
)

// Layouts of the two messages inside CopyData:
// https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-XLOGDATA
const (
	xlogHeader    = 1 + 8 + 8 + 8 // 'w', start, end (both useless in logical mode), time
	keepaliveSize = 1 + 8 + 8 + 1 // 'k', end of WAL, time, reply requested
)

// sentAt is when the server sent an XLogData message, by its clock.
func sentAt(data []byte) time.Time {
	return time.UnixMicro(postgresEpoch + int64(binary.BigEndian.Uint64(data[xlogHeader-8:])))
}

// postgresEpoch is 2000-01-01 UTC in microseconds of the Unix epoch.
const postgresEpoch = 946684800 * 1_000_000
