package connect

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestQuotedTextsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		out := AppendQuoted(nil, s)
		var back string
		if err := json.Unmarshal(out, &back); err != nil || back != s {
			t.Fatalf("%q became %s and came back as %q: %v", s, out, back, err)
		}
		if same := AppendQuoted(nil, []byte(s)); !bytes.Equal(out, same) {
			t.Fatalf("as bytes %s", same)
		}
	})
}

func TestFloatsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return
		}
		if back, err := strconv.ParseFloat(string(AppendFloat(nil, f, 64)), 64); err != nil || back != f {
			t.Fatalf("%v came back as %v: %v", f, back, err)
		}
		short := math.Float32frombits(uint32(math.Float64bits(f)))
		if back, err := strconv.ParseFloat(string(AppendFloat(nil, float64(short), 32)), 32); err != nil || float32(back) != short {
			if !math.IsNaN(float64(short)) && !math.IsInf(float64(short), 0) {
				t.Fatalf("%v came back as %v: %v", short, back, err)
			}
		}
	})
}
