package console

import (
	"strings"
	"testing"
	"time"
)

// TestTerminal: the line of numbers is drawn over itself, cut to the width, and stays below what is
// said.
func TestTerminal(t *testing.T) {
	var out strings.Builder
	c := &Console{out: &out, width: func() int { return 11 }, began: time.Now(), colours: true}
	c.Show("committed 7")
	c.Say("said")
	c.Print(c.Green("end"))
	want := eraseLine + "0:00  comm" + eraseLine + "0:00  said\n0:00  comm" + eraseLine + "\x1b[32mend\x1b[0m\n"
	if out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}

// TestPlain: elsewhere the numbers are written now and then, and not again when nothing has
// changed.
func TestPlain(t *testing.T) {
	var out strings.Builder
	c := To(&out)
	c.Show("1")
	c.Show("too soon")
	for _, numbers := range []string{"1", "2"} {
		c.next = time.Time{}
		c.Show(numbers)
	}
	if want := "0:00  1\n0:00  2\n"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Thousands(999), "999"},
		{Thousands(1234567), "1,234,567"},
		{Size(999), "999 B"},
		{Size(1000), "1.0 KiB"},
		{Size(5 << 30), "5.0 GiB"},
		{Short(40 * time.Microsecond), "0.0 ms"},
		{Short(436 * time.Millisecond), "436 ms"},
		{Short(11800 * time.Millisecond), "11.8 s"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
