package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestSaid(t *testing.T) {
	line := func(text string) string { return strings.Repeat(text, 100) + "\n" }
	for _, tc := range []struct{ name, in, want string }{
		{
			"what the test says, and not what it starts", "=== RUN   TestA\nserver: up\n    a_test.go:7: wrong\n        2\nserver: down\n        3\n--- FAIL: TestA (0.00s)\n",
			"    a_test.go:7: wrong\n        2\n",
		},
		{"an empty line inside", "    a_test.go:7: wrong\n        \n        2\n", "    a_test.go:7: wrong\n        \n        2\n"},
		{"why the process ended", "panic: boom\n\ngoroutine 7 [running]:\n        x\n", "panic: boom\n"},
		{
			"a log of many lines", "    relay.go:5: log:\n        1\n        2\n        3\n        4\n        5\n        6\n        7\n        8\n        9\n        10\n    a_test.go:7: wrong\n",
			"    relay.go:5: log:\n        1\n        2\n        3\n        4 …\n        6\n        7\n        8\n        9\n        10\n    a_test.go:7: wrong\n",
		},
		{
			"a log of nearly as many", "    relay.go:5: log:\n        1\n        2\n        3\n        4\n        5\n        6\n    a_test.go:7: wrong\n",
			"    relay.go:5: log:\n        1\n        2\n        3\n        4\n        5\n        6\n    a_test.go:7: wrong\n",
		},
		{
			"a log of long lines", "    relay.go:5: log:\n        1\n        " + line("long.") + "    a_test.go:7: wrong\n",
			"    relay.go:5: log:\n        1 …\n    a_test.go:7: wrong\n",
		},
		{"one long line", "    a_test.go:7: " + line("wrong"), "    a_test.go:7: " + line("wrong")[:mostBytes-len("    a_test.go:7: ")] + " …\n"},
		{"nothing", "=== RUN   TestA\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(said([]byte(tc.in))); got != tc.want {
				t.Errorf("said:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

// TestSaidIsBounded: whatever the tests print, the end of the report is short, and has the name of
// each.
func TestSaidIsBounded(t *testing.T) {
	var in bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&in, "    a_test.go:%d: wrong %s\n", i, strings.Repeat("ü", 1000))
	}
	text := string(said(in.Bytes()))
	if !utf8.ValidString(text) {
		t.Error("a dead letter is cut in two")
	}
	for _, want := range []string{"a_test.go:0: ", "a_test.go:14: ", "… 970 more …", "a_test.go:985: ", "a_test.go:999: "} {
		if !strings.Contains(text, want) {
			t.Errorf("what is said lacks %q", want)
		}
	}
	var out bytes.Buffer
	rep := newReport(&out, time.Now)
	for i := range 100 {
		rep.fail(fmt.Sprintf("p Test%d", i), text)
	}
	out.Reset()
	rep.close()
	if out.Len() > mostSaid+4000 || strings.Count(out.String(), "failed: p Test") != 100 || !strings.Contains(out.String(), "a_test.go:999: ") {
		t.Errorf("%d bytes, %d names", out.Len(), strings.Count(out.String(), "failed: p Test"))
	}
}
