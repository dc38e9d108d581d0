package decode

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// FuzzDecode: no input panics or changes the frame, and what is accepted is what pglogrepl reads.
// The frame arrives inside or outside a transaction, after the descriptions of a table with a jsonb
// payload, one with bytea, a foreign one, and one whose columns are being replaced.
func FuzzDecode(f *testing.F) {
	for _, wal := range capturedFrames(f) {
		f.Add(true, wal)
		f.Add(false, wal)
	}
	for _, wal := range sampleFrames() {
		f.Add(true, wal)
	}
	for _, row := range [][]value{
		{text("1"), null, text("k"), null, text(`\xff`), null, text("t")},
		{null, text("2"), null, text("k"), null, text("{}"), null},
		{text("1"), text("2"), unchanged, text("k"), text("no hex"), text("{}"), {[]byte{1}, 'b'}},
	} {
		f.Add(true, insertFrame(16405, row...))
	}
	// flags that nobody has yet
	f.Add(true, append([]byte{'M', 0x31}, messageFrame(true, "p", sampleMessage)[2:]...))
	f.Add(true, insertFrame(16400, text("1"), null, text("k"), text("t"), leftOut(70_000), null, null))
	f.Add(true, append([]byte{LeftOutMessage}, messageFrame(true, "p", "")[1:]...))
	f.Fuzz(func(t *testing.T, inside bool, wal []byte) {
		d, limited := readyDecoder(t, inside), readyDecoder(t, inside)
		before := bytes.Clone(wal)
		var msg Message
		limited.leftOut = true
		if err := limited.Decode(wal, &msg); err != nil && !nothing(msg) {
			t.Fatalf("with a limit: an error, but also %+v", msg)
		}
		err := d.Decode(wal, &msg)
		if !bytes.Equal(before, wal) {
			t.Fatal("the frame was changed")
		}
		if err != nil {
			if !nothing(msg) {
				t.Fatalf("an error, but also %+v", msg)
			}
			return
		}
		if err := compareWithOracle(d, wal, &msg); err != nil {
			t.Fatal(err)
		}
	})
}

// TestValidRowsAgainstOracle: every well-formed insert is a row, and each of its columns is as
// pglogrepl reads it.
func TestValidRowsAgainstOracle(t *testing.T) {
	d := readyDecoder(t, true)
	column := rapid.Custom(func(t *rapid.T) value {
		switch rapid.SampledFrom([]string{"text", "text", "text", "null", "unchanged", "binary", "hex"}).Draw(t, "kind") {
		case "text":
			return value{rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "text"), 't'}
		case "hex":
			return text(`\x` + hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "raw")))
		case "unchanged":
			return unchanged
		case "binary":
			return value{[]byte{1, 2}, 'b'}
		default:
			return null
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		oid := rapid.SampledFrom([]uint32{16400, 16401, 16405}).Draw(t, "relation")
		wal := insertFrame(oid, rapid.SliceOfN(column, 7, 7).Draw(t, "row")...)
		var msg Message
		if err := d.Decode(wal, &msg); err != nil {
			t.Fatal(err)
		}
		if msg.Kind != Row {
			t.Fatalf("got kind %d", msg.Kind)
		}
		if err := compareWithOracle(d, wal, &msg); err != nil {
			t.Fatal(err)
		}
	})
}

func readyDecoder(t testing.TB, inside bool) *Decoder {
	jsonb, bytea := outboxTable(), outboxTable()
	bytea.Name = "outbox_bytea"
	moving := Table{Schema: "public", Name: "outbox_moving", Mapping: movingMapping()}
	d := New(Config{Tables: []Table{jsonb, bytea, moving}, Messages: Messages{Prefix: "p", Mapping: jsonb.Mapping}, Columns: []string{"type"}})
	frames := [][]byte{
		beginFrame(0x1000, 7),
		relationFrame(16400, "public", "outbox", outboxColumns(3802)),
		relationFrame(16401, "public", "outbox_bytea", outboxColumns(17)),
		relationFrame(16402, "public", "foreigner", outboxColumns(23)),
		relationFrame(16405, "public", "outbox_moving", []Column{
			{Name: "event_id", TypeOID: 2950}, {Name: "id", TypeOID: 20}, {Name: "customer", TypeOID: 25}, {Name: "aggregateid", TypeOID: 25}, {Name: "body", TypeOID: 17}, {Name: "payload", TypeOID: 3802}, {Name: "type", TypeOID: 25},
		}),
		commitFrame(0x1000, 0x1030),
	}
	if inside {
		frames = append(frames, beginFrame(0x2000, 8))
	}
	for _, wal := range frames {
		var msg Message
		if err := d.Decode(wal, &msg); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// movingMapping has two names for each of some parts.
func movingMapping() Mapping {
	names := func(any ...string) Names { return Names{Any: any} }
	return Mapping{ID: names("event_id", "id"), Key: names("customer", "aggregateid"), Type: names("type"), Payload: names("body", "payload")}
}

// sampleFrames has one valid frame per type and form, for the inside of readyDecoder's second
// transaction.
func sampleFrames() [][]byte {
	row := []value{text("1"), text("order"), text("42"), text("created"), text(`\x00`), text("2025-11-20 12:25:01.1+00"), null}
	return [][]byte{
		insertFrame(16400, row...), insertFrame(16401, row...), insertFrame(16402, row...),
		updateFrame(16400, 'N', row...), updateFrame(16400, 'K', row...), updateFrame(16402, 'O', row...),
		deleteFrame(16400, 'K', row...), deleteFrame(16402, 'O', row...),
		truncateFrame(16400), truncateFrame(16402, 16400), messageFrame(true, "other", "content"),
		messageFrame(true, "p", "content"), messageFrame(false, "p", "content"), messageFrame(true, "p", sampleMessage),
		originFrame("elsewhere"), typeFrame(16500, "public", "mood"),
		relationFrame(16400, "public", "outbox", outboxColumns(3802)), relationFrame(16403, "public", "new", outboxColumns(23)),
		relationFrame(16404, "public", "empty", nil), commitFrame(0x2000, 0x2030),
	}
}

const sampleMessage = `{"id": 1, "aggregatetype": "order", "aggregateid": "42", "type": "created", "payload": {"a": [1]}, "headers": {"h": 1}}`

// capturedFrames are the frames of testdata/wal, in order.
func capturedFrames(t testing.TB) [][]byte {
	paths, err := filepath.Glob("testdata/wal/*")
	if err != nil || len(paths) == 0 {
		t.Fatal("no captured sessions in testdata/wal", err)
	}
	var frames [][]byte
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		hexLines := false
		for line := range strings.Lines(string(content)) {
			switch line = strings.TrimSpace(line); {
			case line == "wal":
				hexLines = true
			case line == "----":
				hexLines = false
			case hexLines:
				wal, err := hex.DecodeString(line)
				if err != nil {
					t.Fatal(err)
				}
				frames = append(frames, wal)
			}
		}
	}
	return frames
}
