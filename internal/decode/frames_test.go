// Frames as PostgreSQL writes them, built for tests.

package decode

import "encoding/binary"

var be = binary.BigEndian

func beginFrame(commit uint64, xid uint32) []byte {
	b := be.AppendUint64([]byte{'B'}, commit)
	b = be.AppendUint64(b, 815_500_000_000_000) // in 2025
	return be.AppendUint32(b, xid)
}

func commitFrame(commit, end uint64) []byte {
	b := be.AppendUint64([]byte{'C', 0}, commit)
	b = be.AppendUint64(b, end)
	return be.AppendUint64(b, 815_500_000_000_000)
}

func relationFrame(oid uint32, schema, name string, columns []Column) []byte {
	b := be.AppendUint32([]byte{'R'}, oid)
	b = appendString(b, schema)
	b = appendString(b, name)
	b = append(b, 'd')
	b = be.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = appendString(append(b, 0), c.Name)
		b = be.AppendUint32(b, c.TypeOID)
		b = be.AppendUint32(b, 0xffffffff)
	}
	return b
}

func insertFrame(oid uint32, values ...value) []byte {
	return appendTuple(append(be.AppendUint32([]byte{'I'}, oid), 'N'), values)
}

// updateFrame has an old tuple when tag is 'K' or 'O'.
func updateFrame(oid uint32, tag byte, values ...value) []byte {
	b := be.AppendUint32([]byte{'U'}, oid)
	if tag != 'N' {
		b = appendTuple(append(b, tag), values)
	}
	return appendTuple(append(b, 'N'), values)
}

func deleteFrame(oid uint32, tag byte, values ...value) []byte {
	return appendTuple(append(be.AppendUint32([]byte{'D'}, oid), tag), values)
}

func truncateFrame(oids ...uint32) []byte {
	b := append(be.AppendUint32([]byte{'T'}, uint32(len(oids))), 0)
	for _, oid := range oids {
		b = be.AppendUint32(b, oid)
	}
	return b
}

func messageFrame(transactional bool, prefix, content string) []byte {
	b := []byte{'M', 0}
	if transactional {
		b[1] = 1
	}
	b = appendString(be.AppendUint64(b, 0x1234), prefix)
	return append(be.AppendUint32(b, uint32(len(content))), content...)
}

func originFrame(name string) []byte {
	return appendString(be.AppendUint64([]byte{'O'}, 0x99), name)
}

func typeFrame(oid uint32, schema, name string) []byte {
	return appendString(appendString(be.AppendUint32([]byte{'Y'}, oid), schema), name)
}

func text(s string) value { return value{[]byte(s), 't'} }

var (
	null      = value{kind: 'n'}
	unchanged = value{kind: 'u'}
)

func appendTuple(b []byte, values []value) []byte {
	b = be.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		b = append(b, v.kind)
		switch v.kind {
		case 't', 'b':
			b = append(be.AppendUint32(b, uint32(len(v.data))), v.data...)
		case LeftOutValue:
			b = append(b, v.data...)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte { return append(append(b, s...), 0) }
