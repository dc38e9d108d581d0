package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

const limit = 64 << 10

// message is a message of the server's.
func message(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

// wal is a frame of pgoutput as the server sends it.
func wal(frame string) []byte {
	return message('d', append(append([]byte{'w'}, bytes.Repeat([]byte{7}, 24)...), frame...))
}

// tuple is a tuple of values; nil: NULL, "unchanged": as an update has it.
func tuple(tag string, values ...any) string {
	b := binary.BigEndian.AppendUint16([]byte(tag), uint16(len(values)))
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			b = append(b, 'n')
		case byte:
			b = append(b, v)
		case string:
			b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v))), v...)
		case int: // its length alone
			b = binary.BigEndian.AppendUint32(append(b, decode.LeftOutValue), uint32(v))
		}
	}
	return string(b)
}

func emitted(kind, prefix string, content []byte, size int) string {
	b := append([]byte(kind+"\x01\x00\x00\x00\x00\x00\x00\x00\x05"+prefix), 0)
	return string(append(binary.BigEndian.AppendUint32(b, uint32(size)), content...))
}

var (
	large = strings.Repeat("x", 3*limit)
	kept  = strings.Repeat("k", KeepOfLarge)
)

// stream is what a server sends, and what is handed on of it.
func stream() (sent, want []byte) {
	for _, m := range []struct{ sent, want []byte }{
		{message('R', make([]byte, 8)), nil},
		{message('S', []byte(large)), nil}, // whatever it is: it is no row
		{wal("B" + strings.Repeat("b", 20)), nil},
		{wal("R" + large), nil},
		{wal("I\x00\x00\x00\x09" + tuple("N", "1", "a key", nil, "{}")), nil},
		{wal("I\x00\x00\x00\x09" + tuple("N", "2", large, nil, "a key")), wal("I\x00\x00\x00\x09" + tuple("N", "2", len(large), nil, "a key"))},
		{wal("I\x00\x00\x00\x09" + tuple("N", kept, kept+"1", "", large)), wal("I\x00\x00\x00\x09" + tuple("N", kept, len(kept)+1, "", len(large)))},
		{wal("U\x00\x00\x00\x09" + tuple("O", "3", large) + tuple("N", large, byte('u'))), wal("U\x00\x00\x00\x09" + tuple("O", "3", len(large)) + tuple("N", len(large), byte('u')))},
		{wal("D\x00\x00\x00\x09" + tuple("K", large, nil)), wal("D\x00\x00\x00\x09" + tuple("K", len(large), nil))},
		{wal(emitted("M", "ours", []byte(large), len(large))), wal(emitted("L", "ours", nil, len(large)))},
		{wal(emitted("M", large, []byte("{}"), 2)), wal(emitted("L", large[:KeepOfLarge], nil, len(large)-KeepOfLarge+1+4+2))},
		{message('d', append([]byte{'k'}, make([]byte, 17)...)), nil},
		// exactly at the limit, and a byte above it
		{wal("I\x00\x00\x00\x09" + tuple("N", "4", "a key", nil, strings.Repeat("x", limit-30))), nil},
		{wal("I\x00\x00\x00\x09" + tuple("N", "5", "a key", nil, strings.Repeat("x", limit-29))), wal("I\x00\x00\x00\x09" + tuple("N", "5", "a key", nil, limit-29))},
		{wal("C" + strings.Repeat("c", 25)), nil},
	} {
		sent = append(sent, m.sent...)
		if m.want == nil {
			m.want = m.sent
		}
		want = append(want, m.want...)
	}
	return sent, want
}

// TestReader: whatever pieces come, and whatever pieces are asked for, each large value is replaced
// by its length, and nothing else is changed.
func TestReader(t *testing.T) {
	sent, want := stream()
	for name, from := range map[string]func(io.Reader) io.Reader{
		"as it is":      func(r io.Reader) io.Reader { return r },
		"byte by byte":  iotest.OneByteReader,
		"half":          iotest.HalfReader,
		"end with data": iotest.DataErrReader,
		"deadlines":     func(r io.Reader) io.Reader { return &stutter{from: r} },
	} {
		for _, to := range []func(io.Reader) io.Reader{nil, iotest.OneByteReader} {
			r := io.Reader(newLargeRowReader(bufio.NewReaderSize(from(bytes.NewReader(sent)), 16<<10), limit))
			if to != nil {
				r = to(r)
			}
			got, err := readAll(r)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes and %v, want %d bytes that differ from byte %d on", name, len(got), err, len(want), firstDifference(got, want))
			}
		}
	}
}

// TestReaderSplit: the stream is cut at each byte of its small messages, and of the beginnings and
// ends of large values.
func TestReaderSplit(t *testing.T) {
	sent, want := stream()
	for at := range sent {
		if at > 0 && at < len(sent) && sent[at-1] == sent[at] && (sent[at] == 'x' || sent[at] == 'k') {
			continue
		}
		r := newLargeRowReader(bufio.NewReaderSize(io.MultiReader(bytes.NewReader(sent[:at]), bytes.NewReader(sent[at:])), 16<<10), limit)
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut at %d: %d bytes and %v, want %d", at, len(got), err, len(want))
		}
	}
}

// TestReaderDoesNotWait: what is there is handed on, though more may come.
func TestReaderDoesNotWait(t *testing.T) {
	small := wal("C" + strings.Repeat("c", 25))
	for extra := range walHeader {
		ours, theirs := io.Pipe()
		go func() {
			// and no more
			_, _ = theirs.Write(append(bytes.Clone(small), wal("I" + large)[:extra]...))
		}()
		r, got := newLargeRowReader(bufio.NewReader(ours), limit), make([]byte, len(small))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, small) {
			t.Errorf("%d bytes of a next message: got %q, %v", extra, got, err)
		}
		_ = ours.Close()
	}
}

// TestReaderRefuses: a message whose parts are longer than it ends the session.
func TestReaderRefuses(t *testing.T) {
	for name, frame := range map[string]string{
		"a value":    "I\x00\x00\x00\x09" + tuple("N", large)[:4] + "\x00\x10\x00\x00" + large,
		"a tuple":    "I\x00\x00\x00\x09" + tuple("N", large) + "N",
		"a message":  "M\x01\x00\x00\x00\x00\x00\x00\x00\x05" + large[:limit] + "\x00\x00",
		"kept value": "I\x00\x00\x00\x09" + tuple("N", large, kept)[:3+5+len(large)+5+10],
	} {
		r := newLargeRowReader(bufio.NewReaderSize(bytes.NewReader(append(wal(frame), wal("C")...)), 16<<10), limit)
		if got, err := io.ReadAll(r); !errors.Is(err, errLength) && !strings.HasPrefix(name, "a message") || len(got) > 2*limit {
			t.Errorf("%s: %d bytes and %v, want %v", name, len(got), err, errLength)
		}
	}
}

// FuzzReader: no bytes panic, make a message of more than was sent, or depend on how they come.
// Little is kept of a value, so that the inputs are small: Go tries for a minute to make a new one
// of some KiB smaller before it goes on.
func FuzzReader(f *testing.F) {
	const keep = 8
	value := strings.Repeat("v", keep+1)
	for _, frame := range []string{
		"I\x00\x00\x00\x09" + tuple("N", "1", value, nil, "key", "value"),
		"U\x00\x00\x00\x09" + tuple("O", value) + tuple("N", value, byte('u')),
		emitted("M", "ours", []byte(value), len(value)), emitted("M", value, []byte("{}"), 2), "M" + value,
	} {
		f.Add(slices.Concat(wal(frame), wal("C"), wal(frame)[:40]))
	}
	read := func(from io.Reader) ([]byte, error) {
		r := newLargeRowReader(bufio.NewReaderSize(from, 64), 8)
		r.keep = keep
		return io.ReadAll(r)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) > 256 {
			return
		}
		got, err := read(bytes.NewReader(sent))
		if len(got) > len(sent)+8 { // NUL and length of a prefix that is cut
			t.Fatalf("%d bytes became %d, %v", len(sent), len(got), err)
		}
		if pieces, _ := read(iotest.HalfReader(bytes.NewReader(sent))); !bytes.Equal(pieces, got) {
			t.Fatalf("in pieces %d bytes became %d, as a whole %d", len(sent), len(pieces), len(got))
		}
	})
}

// stutter is a connection whose deadline passes before each of its reads.
type stutter struct {
	from io.Reader
	late bool
}

func (s *stutter) Read(p []byte) (int, error) {
	if s.late = !s.late; s.late {
		return 0, os.ErrDeadlineExceeded
	}
	return s.from.Read(p[:min(len(p), 1000)])
}

// readAll reads on after a deadline.
func readAll(r io.Reader) (all []byte, err error) {
	for {
		part, err := io.ReadAll(r)
		all = append(all, part...)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return all, err
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
