// Frames of pgoutput, protocol version 1, for rows that were read from a table: so the decoder of
// the stream makes their events, and there is no second mapping.

package tablerows

import (
	"cmp"
	"encoding/binary"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// epoch2000 is 2000-01-01 in microseconds since 1970-01-01, from which frames count.
const epoch2000 = 946_684_800_000_000

// BeginFrame opens a transaction whose commit is at that position and time, in microseconds since
// 1970.
func BeginFrame(buf []byte, commit pglogrepl.LSN, time int64) []byte {
	buf = append(buf[:0], 'B')
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	buf = binary.BigEndian.AppendUint64(buf, uint64(time-epoch2000))
	return binary.BigEndian.AppendUint32(buf, 0) // xid
}

// CommitFrame ends it.
func CommitFrame(buf []byte, commit pglogrepl.LSN) []byte {
	buf = append(buf[:0], 'C', 0)
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	return binary.BigEndian.AppendUint64(buf, 0)
}

// typeFrame has the base type of a domain, one of PostgreSQL's own.
func typeFrame(c decode.Column) []byte {
	buf := binary.BigEndian.AppendUint32([]byte{'Y'}, c.OwnOID)
	return append(append(append(buf, 0), c.Type.Name...), 0)
}

// relationFrame describes a table. Names are as the database stores them.
func relationFrame(t *Table) []byte {
	buf := binary.BigEndian.AppendUint32([]byte{'R'}, t.OID)
	buf = append(append(buf, t.schema...), 0)
	buf = append(append(buf, t.name...), 0, 'd')
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(t.Columns)))
	for i, c := range t.Columns {
		buf = append(buf, 0)
		buf = append(append(buf, t.names[i]...), 0)
		buf = binary.BigEndian.AppendUint32(buf, cmp.Or(c.OwnOID, c.TypeOID))
		buf = binary.BigEndian.AppendUint32(buf, uint32(t.typmods[i]))
	}
	return buf
}

// InsertFrame is a row of a table, its values as text. With lengths some are left out.
func InsertFrame(buf []byte, oid uint32, values [][]byte, lengths []int64) []byte {
	buf = binary.BigEndian.AppendUint32(append(buf[:0], 'I'), oid)
	buf = binary.BigEndian.AppendUint16(append(buf, 'N'), uint16(len(values)))
	for i, v := range values {
		switch {
		case v == nil && lengths != nil && lengths[i] >= 0:
			buf = binary.BigEndian.AppendUint32(append(buf, decode.LeftOutValue), uint32(lengths[i]))
			continue
		case v == nil:
			buf = append(buf, 'n')
			continue
		}
		buf = binary.BigEndian.AppendUint32(append(buf, 't'), uint32(len(v)))
		buf = append(buf, v...)
	}
	return buf
}
