package decode

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// asked is an Encoding whose server knows these characters, and what it was asked for.
func asked(name string, known map[string]string) (*Encoding, *[]string) {
	var log []string
	return NewEncoding(name, func(characters [][]byte) (utf8 [][]byte, err error) {
		utf8 = [][]byte{}
		for _, c := range characters {
			log = append(log, string(c))
			if u, ok := known[string(c)]; ok && utf8 != nil {
				utf8 = append(utf8, []byte(u))
			} else {
				utf8 = nil
			}
		}
		return utf8, nil
	}), &log
}

// Text is taken apart into the characters of its encoding, and each is asked for once.
func TestEncodings(t *testing.T) {
	for name, c := range map[string]struct {
		known map[string]string
		texts [][2]string // with what becomes of each; "-": it is refused
		asks  []string
	}{
		"SQL_ASCII": {nil, [][2]string{{"grün", "grün"}, {"gr\xfcn", "-"}, {"\xed\xa0\x80", "-"}, {"", ""}}, nil},
		"WIN1252": {
			map[string]string{"\xfc": "ü", "\x80": "€"},
			[][2]string{{"", ""}, {"gr\xfcn \x80\x80\xfc", "grün €€ü"}, {"\xfc\x81", "-"}, {"\x80", "€"}},
			[]string{"\xfc", "\x80", "\x81"},
		},
		"EUC_JP": {
			map[string]string{"\xa4\xa2": "あ", "\x8e\xb1": "ｱ", "\x8f\xb0\xa1": "丂"},
			[][2]string{{"\xa4\xa2a\x8e\xb1\x8f\xb0\xa1\xa4\xa2", "あaｱ丂あ"}, {"\xa4\xa2\xa4", "-"}, {"\xa4a", "-"}, {"\x8f\xb0", "-"}},
			[]string{"\xa4\xa2", "\x8e\xb1", "\x8f\xb0\xa1", "\xa4", "\xa4a", "\x8f\xb0"},
		},
		"EUC_JIS_2004": {map[string]string{"\xa4\xf7": "か゚", "\x8f\xa1\xa1": "𠂉"}, [][2]string{{"\xa4\xf7\x8f\xa1\xa1", "か゚𠂉"}}, []string{"\xa4\xf7", "\x8f\xa1\xa1"}},
		"EUC_TW":       {map[string]string{"\x8e\xa2\xa1\xa1": "乂", "\xc4\xa1": "一"}, [][2]string{{"\x8e\xa2\xa1\xa1\xc4\xa1", "乂一"}}, []string{"\x8e\xa2\xa1\xa1", "\xc4\xa1"}},
		"EUC_KR":       {map[string]string{"\xb0\xa1": "가", "\x8f\xa1": "x"}, [][2]string{{"\xb0\xa1\x8f\xa1", "가x"}}, []string{"\xb0\xa1", "\x8f\xa1"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, asks := asked(name, c.known)
			for _, text := range c.texts {
				got, ok := e.text([]byte(text[0]))
				if text[1] == "-" {
					text[1] = ""
					if ok || got != nil {
						t.Errorf("%q is taken, as %q", text[0], got)
					}
				} else if !ok || string(got) != text[1] || got == nil {
					t.Errorf("%q becomes %q, %v, want %q", text[0], got, ok, text[1])
				}
			}
			if got, want := fmt.Sprintf("%q", *asks), fmt.Sprintf("%q", c.asks); got != want {
				t.Errorf("the server was asked for %s, want %s", got, want)
			}
		})
	}
}

// latin is a decoder of one table in a database of another encoding, inside a transaction.
func latin(t *testing.T) *Decoder {
	t.Helper()
	e, _ := asked("WIN1252", map[string]string{"\xfc": "ü", "\xdf": "ß"})
	d := New(Config{
		Tables: []Table{{Schema: "public", Name: "grün", Mapping: Mapping{
			ID: Names{Any: []string{"id"}}, Key: Names{Any: []string{"schlüssel"}}, Payload: Names{Any: []string{"payload"}},
		}}},
		Messages: Messages{Prefix: "grün"}, Columns: []string{"maß"}, Shapes: true, Encoding: e,
	})
	mustDecode(t, d, beginFrame(0x3000, 9))
	return d
}

var latinRelation = relationFrame(16400, "public", "gr\xfcn", []Column{{Name: "id", TypeOID: 25}, {Name: "schl\xfcssel", TypeOID: 25}, {Name: "payload", TypeOID: 25}, {Name: "ma\xdf", TypeOID: 25}, {Name: "\x81", TypeOID: 25}})

// Names and values of rows are converted. A value that cannot be is the fault of its row, which
// keeps the bytes of the database; no later row waits for it. A column that is no part of an event
// is not looked at.
func TestRowsOfAnotherEncoding(t *testing.T) {
	d := latin(t)
	msg := mustDecode(t, d, latinRelation)
	if err := d.Shaped(msg.OID, msg.Shape); err != nil || msg.Shape.Table != "grün" || msg.Shape.Columns[1].Name != "schlüssel" {
		t.Fatal(msg.Shape, err)
	}
	good := insertFrame(16400, text("1"), text("\xfc"), text("a\xdf"), text("\xdf"), text("\x81"))
	ev := mustDecode(t, d, good).Event
	if ev.Fault != nil || string(ev.Key) != "ü" || string(ev.Payload) != "aß" || string(ev.Columns[0]) != "ß" || !ev.Ordered {
		t.Errorf("the row is %+v", ev)
	}
	ev = mustDecode(t, d, insertFrame(16400, text("2"), text("\xfc"), text("a\x81\xdf"), null, text("\xfc\x81"))).Event
	if want := `{"id":"2","schlüssel":"ü","payload:hex":"6181df","maß":null,"\\x81:hex":"fc81"}`; string(ev.Raw) != want {
		t.Errorf("kept of the row is %s, want %s", ev.Raw, want)
	}
	if ev.Fault == nil || !strings.Contains(ev.Fault.Error(), `column "payload" of public.grün`) || ev.Ordered || ev.Payload != nil || string(ev.Key) != "ü" {
		t.Errorf("the row is %+v", ev)
	}
	ev = mustDecode(t, d, good).Event
	if ev.Fault != nil || ev.Position.Index != 2 || !ev.Ordered {
		t.Errorf("the row behind it is %+v", ev)
	}
	if ev.Shape == nil || ev.Shape.Columns[1].Name != "schlüssel" {
		t.Error(ev.Shape)
	}
	if msg := mustDecode(t, d, messageFrame(true, "gr\xfcn", "{}")); msg.Kind != Row {
		t.Errorf("a message of our prefix is %+v", msg)
	}
	if msg := mustDecode(t, d, messageFrame(true, "gr\x81n", "{}")); msg.Reason != "message" {
		t.Errorf("a message of another prefix is %+v", msg)
	}
	mustDecode(t, d, relationFrame(16500, "public", "gr\x81n", nil))
	if msg := mustDecode(t, d, insertFrame(16500)); msg.Kind != Foreign || msg.Name != `public.gr\x81n` {
		t.Errorf("the first row of another table is %+v", msg)
	}
}

// The text of a row lies in a buffer that is used again, as far as it is not huge.
func TestConvertedRowAllocatesNothing(t *testing.T) {
	d := latin(t)
	mustDecode(t, d, latinRelation)
	d.relations[16400].shaped = true
	wal := insertFrame(16400, text("1"), text("\xfc"), text("a\xdf"), text("\xdf"), null)
	var msg Message
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Decode(wal, &msg); err != nil || msg.Event.Fault != nil {
			t.Fatal(err, msg.Event.Fault)
		}
	}); n != 0 {
		t.Errorf("%v allocations for an insert, want none", n)
	}
	huge := insertFrame(16400, text("1"), text("\xfc"), text(strings.Repeat("\xfc", maxKept)), null, null)
	if ev := mustDecode(t, d, huge).Event; !bytes.Equal(ev.Payload, bytes.Repeat([]byte("ü"), maxKept)) || string(ev.Key) != "ü" {
		t.Error("a huge row is not converted")
	}
	if mustDecode(t, d, commitFrame(0x3000, 0x3030)); d.encoding.buffer != nil {
		t.Errorf("%d bytes are kept for the next row", cap(d.encoding.buffer))
	}
}

// While the server cannot be asked nothing is known of a text: the session ends, whatever the frame
// looks like, and no row becomes a dead letter, no table a misfit.
func TestServerCannotBeAsked(t *testing.T) {
	gone := errors.New("gone")
	for name, wal := range map[string][]byte{
		"row": insertFrame(16400, text("1"), text("\xe9"), text(""), null, null), "message": messageFrame(true, "\xe9", "{}"),
		"relation": relationFrame(16400, "public", "gr\xfcn", []Column{{Name: "id", TypeOID: 25}, {Name: "schl\xe9", TypeOID: 25}}),
	} {
		t.Run(name, func(t *testing.T) {
			d := latin(t)
			mustDecode(t, d, latinRelation)
			d.relations[16400].shaped = true
			d.encoding.convert = func([][]byte) ([][]byte, error) { return nil, gone }
			var msg Message
			err := d.Decode(wal, &msg)
			if stop, ok := errors.AsType[*event.Stop](err); !errors.Is(err, gone) || ok || !nothing(msg) {
				t.Errorf("got %v (%v) and %+v", err, stop, msg)
			}
			if again := d.Decode(commitFrame(0x3000, 0x3030), &msg); !errors.Is(again, gone) {
				t.Errorf("the commit gives %v", again)
			}
		})
	}
}
