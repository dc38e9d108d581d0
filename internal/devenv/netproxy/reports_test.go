package netproxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// What a client of PostgreSQL sends is understood in pieces of any size, and what is no report is
// passed over.
func TestReportsInPieces(t *testing.T) {
	message := func(kind byte, payload ...byte) []byte {
		var b []byte
		if kind != 0 {
			b = append(b, kind)
		}
		return append(binary.BigEndian.AppendUint32(b, uint32(4+len(payload))), payload...)
	}
	update := func(kind byte, flush pglogrepl.LSN) []byte {
		b := binary.BigEndian.AppendUint64([]byte{kind}, 1<<40)
		b = binary.BigEndian.AppendUint64(b, uint64(flush))
		return message('d', append(b, make([]byte, 17)...)...)
	}
	stream := slices.Concat(
		message(0, 4, 210, 22, 47),                               // SSLRequest
		message(0, append([]byte{0, 3, 0, 0}, "user\x00"...)...), // StartupMessage
		message('Q', bytes.Repeat([]byte("drdr"), 5000)...),
		message('X'),
		update('r', 7),
		message('d', 'r', 0, 0),
		update('h', 8),
		update('r', 9), update('r', 5),
		message('d', bytes.Repeat([]byte{'r'}, 100)...),
		update('r', 1<<50),
	)
	for name, from := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "halves": iotest.HalfReader(bytes.NewReader(stream)), "bytes": iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		var got []pglogrepl.LSN
		through, err := io.ReadAll(&reportReader{from: from, report: func(flush pglogrepl.LSN) { got = append(got, flush) }})
		await.Must(t, err)
		if !bytes.Equal(through, stream) {
			t.Errorf("%s: the bytes are not the same", name)
		}
		if want := []pglogrepl.LSN{7, 9, 5, 1 << 50}; !slices.Equal(got, want) {
			t.Errorf("%s: reports %v, want %v", name, got, want)
		}
	}
}

// The id in BackendKeyData is another one, whatever pieces the messages come in, and nothing else
// changes: not what looks like such a message after the login.
func TestProcessIDsAreHidden(t *testing.T) {
	key, later := []byte{'K', 0, 0, 0, 12, 0, 0, 1, 2, 9, 9, 9, 9}, []byte{'D', 0, 0, 0, 5, 'K', 'K', 0, 0, 0, 12, 1, 1, 1, 1}
	before, ready := []byte{'R', 0, 0, 0, 8, 0, 0, 0, 0, 'S', 0, 0, 0, 6, 'K', 0}, []byte{'Z', 0, 0, 0, 5, 'I'}
	hidden := slices.Clone(key)
	hidden[5] ^= 0x40
	stream, want := slices.Concat(before, key, ready, later), slices.Concat(before, hidden, ready, later)
	for name, from := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "halves": iotest.HalfReader(bytes.NewReader(stream)), "bytes": iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		got, err := io.ReadAll(&idHider{from: from})
		await.Must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
