package printable

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestPlainText(t *testing.T) {
	for text, want := range map[string][2]string{
		"order-1 é 日本":      {"order-1 é 日本", "order-1 é 日本"},
		"a\x1b]0;x\ab":      {"a?]0;x?b", "a?]0;x?b"},
		"a\u009b31mb\x7f":   {"a?31mb?", "a?31mb?"},
		"a\u202eb\u2066c":   {"a?b?c", "a?b?c"},
		"a\nb\tc\r\nd\re":   {"a?b?c??d?e", "a\nb\tc\nd?e"},
		"broken \xff\x9b x": {"broken \ufffd\ufffd x", "broken \ufffd\ufffd x"},
	} {
		if got := [2]string{Line(text), Lines(text)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A program reads the same text from the escaped JSON.
func TestJSONMeansTheSame(t *testing.T) {
	text := "é \x1b]0;x\a \u009b31m \x7f \u202e \u2028 \U000E0001 \r\n\t"
	var out bytes.Buffer
	enc := json.NewEncoder(JSON(&out))
	enc.SetIndent("", "\t")
	if err := enc.Encode(map[string]string{"a": text}); err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsFunc(out.Bytes(), isEscaped) {
		t.Errorf("%q", out.String())
	}
	if _, err := JSON(&out).Write([]byte("\x9b")); err != nil || !bytes.HasSuffix(out.Bytes(), []byte("\ufffd")) {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Truncate(out.Len() - len("\ufffd"))
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["a"] != text {
		t.Errorf("%q, %v", back["a"], err)
	}
}
