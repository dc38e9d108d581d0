package debezium

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// testdata/*.jsonl are questions and what Debezium 3.6.1.Final with Kafka Connect 4.3.0 answered:
// testdata/oracle makes them.

// questions calls ask with each line of a file of answers.
func questions[T any](t *testing.T, name string, ask func(t *testing.T, line int, q T)) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	n := 0
	for scan.Scan() {
		n++
		var q T
		if err := json.Unmarshal(scan.Bytes(), &q); err != nil {
			t.Fatalf("%s:%d: %v", name, n, err)
		}
		ask(t, n, q)
	}
	if scan.Err() != nil || n == 0 {
		t.Fatalf("%s: %d lines, %v", name, n, scan.Err())
	}
}

// anyBudget is one that nothing here uses up.
func anyBudget() *event.Budget {
	b := event.NewBudget(1 << 20)
	return &b
}

var converters = map[string]Converter{
	"string":        StringConverter{},
	"json":          JSONConverter{ReplaceNulls: true},
	"schema":        JSONConverter{Schemas: true, ReplaceNulls: true},
	"numeric":       JSONConverter{Schemas: true, Numeric: true, ReplaceNulls: true},
	"bytes":         ByteArrayConverter{},
	"binary":        BinaryDataConverter{},
	"binary-string": BinaryDataConverter{Delegate: StringConverter{}},
	"binary-json":   BinaryDataConverter{Delegate: JSONConverter{ReplaceNulls: true}},
	"legacy":        BinaryDataConverter{Legacy: true},
	"legacy-string": BinaryDataConverter{Delegate: StringConverter{}, Legacy: true},
	"header":        SimpleHeaderConverter{},
}

// like says with which converter an answer is the same that is left out.
var like = map[string]string{
	"numeric": "schema", "binary-string": "string", "legacy-string": "string", "binary-json": "json", "header": "string",
	"legacy": "bytes", "binary": "bytes",
}

// answer is what a converter gave, as Oracle.java writes it.
func answer(c Converter, schema *connect.Schema, v connect.Value) string {
	out, null, err := c.Append(nil, math.MaxInt, schema, v)
	switch {
	case err != nil:
		return "!"
	case null:
		return "-"
	case utf8.Valid(out):
		return "=" + string(out)
	default:
		return "x" + hex.EncodeToString(out)
	}
}

type columnQuestion struct {
	OID     uint32
	Typmod  int32
	NotNull bool
	Default *string
	Modes   string
	Text    *string
	Out     map[string]string
	Fault   bool
}

func TestColumnsAsDebeziumHasThem(t *testing.T) {
	questions(t, "columns.jsonl", func(t *testing.T, line int, q columnQuestion) {
		shape := event.ColumnShape{Name: "c", TypeOID: q.OID, Typmod: q.Typmod, NotNull: q.NotNull, Default: q.Default}
		c := columnOf(t, shape, modes(t, q.Modes))
		var text []byte
		if q.Text != nil {
			text = []byte(*q.Text)
		}
		v, _, err := c.Value(nil, text)
		if err != nil || q.Fault {
			if (err != nil) != q.Fault {
				t.Errorf("line %d: error %v, Debezium fails: %v", line, err, q.Fault)
			}
			return
		}
		for name := range converters {
			want, ok := q.Out[name]
			if !ok {
				want = q.Out[like[name]]
			}
			if v.Kind == connect.Moment && v.Int < gregorian && strings.HasSuffix(name, "string") {
				want = "!" // refused: the calendar is another one there
			}
			if got := answer(converters[name], c.Schema, v); got != want {
				t.Errorf("line %d, %s:\n got %s\nwant %s", line, name, got, want)
			}
		}
	})
}

func modes(t *testing.T, names string) connect.Modes {
	t.Helper()
	parts := strings.Split(names, "/")
	for i, of := range [][]string{connect.BinaryModes, connect.TimeModes, connect.DecimalModes} {
		if !slices.Contains(of, parts[i]) {
			t.Fatalf("no mode %q", parts[i])
		}
	}
	return connect.Modes{Binary: parts[0], Time: parts[1], Decimal: parts[2]}
}

func TestFloatsAsJavaWritesThem(t *testing.T) {
	questions(t, "floats.jsonl", func(t *testing.T, line int, q struct{ Double, Float, Out string }) {
		text, bits := q.Double, 64
		if q.Float != "" {
			text, bits = q.Float, 32
		}
		n, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		f := math.Float64frombits(n)
		if bits == 32 {
			f = float64(math.Float32frombits(uint32(n)))
		}
		if got := string(connect.AppendFloat(nil, f, bits)); got != q.Out {
			t.Errorf("line %d: got %s, want %s", line, got, q.Out)
		}
	})
}

type expandQuestion struct {
	Text, Nulls string
	Names       string
	// objects of one array differ: Java merges them in another order each time
	Ragged          bool
	Plain, Envelope json.RawMessage // an object by converter, or "!"
}

func TestPayloadsExpandAsDebeziumsDo(t *testing.T) {
	questions(t, "expand.jsonl", func(t *testing.T, line int, q expandQuestion) {
		e := connect.Expander{Name: "payload", NullsAsBytes: q.Nulls == "optional_bytes"}
		if q.Names != "" {
			e.Names = connect.NameMode(q.Names)
		}
		x, err := e.Expand([]byte(q.Text), anyBudget())
		if err != nil {
			t.Fatal(err)
		}
		schema, v := x.Schema, x.Value
		if x.Unchanged {
			schema = &connect.Schema{Type: connect.String, Name: "io.debezium.data.Json", Version: connect.Versioned(1), Optional: true}
			v = connect.TextValue([]byte(q.Text))
		}
		asked := func(name, got, want string) {
			if got != want && (!q.Ragged || got == "!" || want == "!") {
				t.Errorf("line %d, %.80s, %s:\n got %.400s\nwant %.400s", line, q.Text, name, got, want)
			}
		}
		envelope := &connect.Schema{Type: connect.Struct, Name: "p.public.outbox.a.Value", Fields: []connect.Field{{Name: "payload", Schema: schema}, {Name: "type", Schema: &connect.Schema{Type: connect.String}}}}
		record := connect.Value{Kind: connect.Record, Items: []connect.Value{v, connect.TextValue([]byte("T"))}}
		for _, name := range []string{"string", "json", "schema"} {
			asked(name, answer(converters[name], schema, v), want(t, q.Plain, name))
			asked("envelope, "+name, answer(converters[name], envelope, record), want(t, q.Envelope, name))
		}
	})
}

func want(t *testing.T, answers json.RawMessage, name string) string {
	t.Helper()
	var out map[string]string
	if err := json.Unmarshal(answers, &out); err != nil {
		return "!" // the Event Router threw
	}
	return out[name]
}

func TestNamesAsDebeziumAdjustsThem(t *testing.T) {
	questions(t, "names.jsonl", func(t *testing.T, line int, q struct {
		Name, Mode, Out string
		Field           bool
	},
	) {
		mode := connect.NameMode(q.Mode)
		got := mode.Schema(q.Name)
		if q.Field {
			got = mode.Field(q.Name)
		}
		if got != q.Out {
			t.Errorf("line %d: %q under %s is %q, want %q", line, q.Name, q.Mode, got, q.Out)
		}
	})
}
