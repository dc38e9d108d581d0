// Stories: frames in, what the reader sees out. testdata/stories are written by hand, testdata/wal
// is what PostgreSQL 15 sent (testdata/capture). -rewrite writes the outputs again; only keep what
// you can explain.

package decode

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestStories(t *testing.T) {
	for _, dir := range []string{"stories", "wal"} {
		datadriven.Walk(t, filepath.Join("testdata", dir), func(t *testing.T, path string) {
			var s story
			datadriven.RunTest(t, path, s.step)
		})
	}
}

type story struct {
	cfg Config
	dec *Decoder
}

// step carries out one directive:
//
//	config   a table per line: "schema.name [oid=N] [part=column,column[?]]...", or "messages prefix [part=...]...", or
//	         "columns a b"; a new decoder
//	send     frames in words, one per line
//	try      the same, but the session goes on after an error
//	wal      frames in hex, one per line
//	reset    a new session, which knows what was found before
//	check    columns "name:type OID ..." against the first table
func (s *story) step(t *testing.T, td *datadriven.TestData) string {
	var out strings.Builder
	switch td.Cmd {
	case "config":
		s.cfg = storyConfig(t, td.Input)
		s.dec = New(s.cfg)
	case "reset":
		s.dec = New(s.cfg)
	case "check":
		fmt.Fprintln(&out, describeError(s.cfg.Tables[0].Check(storyColumns(t, strings.Fields(td.Input)), s.cfg.Columns)))
	case "send", "try", "wal":
		for line := range strings.Lines(td.Input) {
			wal := storyFrame(t, td.Cmd, strings.TrimSpace(line))
			var msg Message
			if err := s.dec.Decode(wal, &msg); err != nil {
				fmt.Fprintln(&out, describeError(err))
				if td.Cmd == "try" {
					s.dec.failed = nil
				}
			} else {
				fmt.Fprintln(&out, describeMessage(&msg))
			}
		}
	default:
		td.Fatalf(t, "unknown directive %q", td.Cmd)
	}
	return out.String()
}

func storyConfig(t *testing.T, input string) Config {
	var cfg Config
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		if words[0] == "columns" {
			cfg.Columns = words[1:]
			continue
		}
		if words[0] == "dropped" {
			cfg.Dropped = words[1:]
			continue
		}
		if words[0] == "messages" {
			cfg.Messages.Prefix = words[1]
			for _, word := range words[2:] {
				storyPart(&cfg.Messages.Mapping, word)
			}
			continue
		}
		var table Table
		table.Schema, table.Name, _ = strings.Cut(words[0], ".")
		for _, word := range words[1:] {
			if oid, ok := strings.CutPrefix(word, "oid="); ok {
				table.OID = storyOID(t, oid)
				continue
			}
			storyPart(&table.Mapping, word)
		}
		cfg.Tables = append(cfg.Tables, table)
	}
	return cfg
}

func storyPart(m *Mapping, word string) {
	parts := map[string]*Names{
		"id": &m.ID, "aggregate": &m.Aggregate, "key": &m.Key, "type": &m.Type, "payload": &m.Payload,
		"timestamp": &m.Timestamp, "traceparent": &m.Traceparent, "headers": &m.Headers,
	}
	part, columns, _ := strings.Cut(word, "=")
	names, optional := strings.CutSuffix(columns, "?")
	*parts[part] = Names{Any: strings.Split(names, ","), Optional: optional}
}

// storyFrame makes the frame of one line, by pieces: "insert 16400 | a | NULL | """.
func storyFrame(t *testing.T, cmd, line string) []byte {
	if cmd == "wal" {
		wal, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		return wal
	}
	head, rest, _ := strings.Cut(line, " |")
	words := strings.Fields(head)
	arg := func(i int) uint32 { return storyOID(t, words[i]) }
	switch words[0] {
	case "begin":
		return beginFrame(uint64(storyLSN(t, words[1])), arg(2))
	case "commit":
		return commitFrame(uint64(storyLSN(t, words[1])), uint64(storyLSN(t, words[2])))
	case "relation":
		schema, name, _ := strings.Cut(words[2], ".")
		return relationFrame(arg(1), schema, name, storyColumns(t, words[3:]))
	case "insert":
		return insertFrame(arg(1), storyValues(rest)...)
	case "update":
		return updateFrame(arg(1), words[2][0], storyValues(rest)...)
	case "delete":
		return deleteFrame(arg(1), words[2][0], storyValues(rest)...)
	case "truncate":
		var oids []uint32
		for i := range words[1:] {
			oids = append(oids, arg(i+1))
		}
		return truncateFrame(oids...)
	case "message":
		return messageFrame(words[1] == "inside", words[2], string(storyText(strings.TrimSpace(rest))))
	case "origin":
		return originFrame(words[1])
	case "type":
		return typeFrame(arg(1), "public", words[2])
	case "raw":
		return []byte(words[1])
	}
	t.Fatalf("unknown frame %q", line)
	return nil
}

func storyValues(s string) []value {
	var values []value
	for word := range strings.SplitSeq(s, " |") {
		switch word = strings.TrimSpace(word); word {
		case "NULL":
			values = append(values, null)
		case "UNCHANGED":
			values = append(values, unchanged)
		case "BINARY":
			values = append(values, value{[]byte{1}, 'b'})
		default:
			values = append(values, value{storyText(word), 't'})
		}
	}
	return values
}

// storyText is "" for nothing, the bytes of HEX:..., or itself.
func storyText(word string) []byte {
	if word == `""` {
		return []byte{}
	}
	if digits, ok := strings.CutPrefix(word, "HEX:"); ok {
		raw, err := hex.DecodeString(digits)
		if err != nil {
			panic(err)
		}
		return raw
	}
	return []byte(word)
}

func storyColumns(t *testing.T, words []string) []Column {
	var columns []Column
	for _, w := range words {
		name, oid, _ := strings.Cut(w, ":")
		columns = append(columns, Column{Name: name, TypeOID: storyOID(t, oid)})
	}
	return columns
}

func storyOID(t *testing.T, s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func storyLSN(t *testing.T, s string) pglogrepl.LSN {
	lsn, err := pglogrepl.ParseLSN(s)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}

func describeError(err error) string {
	if err == nil {
		return "ok"
	}
	if stop, ok := errors.AsType[*event.Stop](err); ok {
		return fmt.Sprintf("stop %d %s: %v", stop.Code, stop.Reason, stop)
	}
	return "error: " + err.Error()
}

func describeMessage(m *Message) string {
	switch m.Kind {
	case Begin:
		return fmt.Sprintf("begin %s xid=%d", m.Commit, m.Xid)
	case Commit:
		return fmt.Sprintf("commit %s end=%s xid=%d", m.Commit, m.End, m.Xid)
	case Skipped:
		return "skipped " + m.Reason
	case Replaced:
		return fmt.Sprintf("replaced %s oid=%d", m.Table, m.OID)
	case Foreign:
		return fmt.Sprintf("foreign %s oid=%d (%s)", m.Name, m.OID, m.Reason)
	case Row:
		return describeEvent(m.Event)
	default:
		return "other"
	}
}

func describeEvent(ev *event.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "row %s", ev.Position)
	column := func(name string, v []byte) {
		if v == nil {
			fmt.Fprintf(&b, " %s=NULL", name)
		} else if len(v) > 60 {
			fmt.Fprintf(&b, " %s=%q...%d", name, v[:20], len(v))
		} else {
			fmt.Fprintf(&b, " %s=%q", name, v)
		}
	}
	column("id", ev.ID)
	column("aggregate", ev.Aggregate)
	column("key", ev.Key)
	column("type", ev.Type)
	column(fmt.Sprintf("payload[%s]", ev.PayloadKind.ContentType()), ev.Payload)
	if ev.Traceparent != nil {
		column("traceparent", ev.Traceparent)
	}
	if ev.Headers != nil {
		column("headers", ev.Headers)
	}
	for i, v := range ev.Columns {
		column(fmt.Sprintf("column%d", i), v)
	}
	if ev.Time != ev.CommitTime {
		fmt.Fprintf(&b, " time=%s", ev.Time.Format("2006-01-02T15:04:05.999999Z07:00"))
	}
	if !ev.Ordered {
		b.WriteString(" unordered")
	}
	if ev.Fault != nil {
		fmt.Fprintf(&b, "\n  fault: %v\n  raw: %s", ev.Fault, ev.Raw)
	}
	return b.String()
}
