package event

import (
	"bytes"
	"strings"
	"testing"
)

func TestTraceparent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tc := range []struct {
		text string
		want string // what is written of it; "" for no traceparent
	}{
		{good, good},
		{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"},
		{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"},
		{"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes-later", good},
		{"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", good},
		{"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more", ""},
		{good + "-more", ""},
		{good + " ", ""},
		{" " + good, ""},
		{good[:54], ""},
		{"", ""},
		{"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
		{"00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
		{"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", ""},
		{"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", ""},
		{"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01", ""},
		{"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
		{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x", ""},
		{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-x1", ""},
		{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333x-01", ""},
		{"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", ""},
		{"00-0af7651916cd43dd8448eb211c80319\n-b7ad6b7169203331-01", ""},
		{"zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
		{"00af7651916cd43dd8448eb211c80319c0af7651916cd43dd8448eb211c80319c", ""},
		{strings.Repeat("\xff", len(good)-1) + "1", ""},
	} {
		c, ok := ParseTraceparent([]byte(tc.text))
		switch {
		case ok != (tc.want != ""):
			t.Errorf("%q: read %v", tc.text, ok)
		case ok && string(c.Append([]byte("x"))) != "x"+tc.want:
			t.Errorf("%q: written as %q, want %q", tc.text, c.Append(nil), tc.want)
		}
	}
	c, _ := ParseTraceparent([]byte(good))
	if !c.Sampled() || c.TraceID() != "0af7651916cd43dd8448eb211c80319c" || c.SpanID() != "b7ad6b7169203331" {
		t.Errorf("read as %+v", c)
	}
}

// Whatever the text is, reading it does not panic, and what was read is written and read as the
// same.
func FuzzTraceparent(f *testing.F) {
	f.Add([]byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	f.Add([]byte("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, ok := ParseTraceparent(text)
		if !ok {
			return
		}
		written := c.Append(nil)
		if again, ok := ParseTraceparent(written); !ok || again != c {
			t.Errorf("%q was read as %+v, written as %q, and read as %+v", text, c, written, again)
		}
		if !bytes.Equal(written[3:52], text[3:52]) {
			t.Errorf("%q was written as %q", text, written)
		}
	})
}

func TestTraceparentAllocatesNothing(t *testing.T) {
	text := []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	room := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		if c, ok := ParseTraceparent(text); ok {
			c.Append(room)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
