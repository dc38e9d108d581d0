package connect

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A decimal against math/big: its bytes are the shortest two's complement, and its text is the one
// that it was read from.
func TestDecimalsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?`).Draw(t, "text")
		v, _, err := parseDecimal(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want, _ := new(big.Int).SetString(strings.Replace(text, ".", "", 1), 10)
		got := new(big.Int).SetBytes(v.Data)
		if v.Data[0] >= 0x80 {
			got.Sub(got, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v.Data))))
		}
		if got.Cmp(want) != 0 {
			t.Fatalf("%s is %x, which is %s", text, v.Data, got)
		}
		if n := v.Data; len(n) > 1 && (n[0] == 0 && n[1] < 0x80 || n[0] == 0xFF && n[1] >= 0x80) {
			t.Fatalf("%s is %x: not the shortest", text, n)
		}
		if plain := string(appendPlain(nil, v)); plain != text && want.Sign() != 0 {
			t.Fatalf("%s came back as %s", text, plain)
		}
		// BigDecimal.toString is a number, too, and the same one.
		r, ok := new(big.Rat).SetString(string(AppendDecimal(nil, v)))
		if same, _ := new(big.Rat).SetString(text); !ok || r.Cmp(same) != 0 {
			t.Fatalf("%s is written %s", text, AppendDecimal(nil, v))
		}
	})
}
