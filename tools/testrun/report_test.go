package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const (
		runA  = `{"Action":"run","Package":"p","Test":"TestA"}` + "\n"
		outA  = `{"Action":"output","Package":"p","Test":"TestA","Output":"noise of A\n"}` + "\n"
		passA = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		okP   = `{"Action":"pass","Package":"p","Elapsed":1.5}` + "\n"
		failP = `{"Action":"fail","Package":"p","Elapsed":1.5}` + "\n"
	)
	for _, tc := range []struct {
		name, in string
		ok       bool
		want     []string
		not      string
	}{
		{
			name: "a passing test is counted and silent", in: runA + outA + passA + okP, ok: true,
			want: []string{"ok    p", "1 passed, 0 failed\n"}, not: "noise",
		},
		{
			name: "what a passing test reports is shown",
			in:   runA + outA + `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: report: killed 7 times\n"}` + "\n" + passA + okP,
			ok:   true, want: []string{"      killed 7 times\n", "1 passed, 0 failed\n"}, not: "noise",
		},
		{
			name: "a failing test shows its output and its name",
			in:   runA + outA + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + failP,
			want: []string{"noise of A", "failed: p TestA\n", "0 passed, 1 failed\n"},
		},
		{
			name: "at the end a failing test says once more why",
			in: runA + `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: panel is wrong:\n"}` + "\n" +
				`{"Action":"output","Package":"p","Test":"TestA","Output":"        1, and it is 2\n"}` + "\n" + outA +
				`{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + failP,
			want: []string{"failed: p TestA\n    a_test.go:7: panel is wrong:\n        1, and it is 2\ntook 0 s\n"},
		},
		{
			name: "a package that fails outside of its tests, too",
			in:   runA + passA + `{"Action":"output","Package":"p","Output":"panic: elsewhere\n"}` + "\n" + failP,
			want: []string{"failed: p\npanic: elsewhere\n"},
		},
		{
			name: "a skipped test is a failure by name",
			in:   runA + `{"Action":"skip","Package":"p","Test":"TestA"}` + "\n" + okP,
			want: []string{"not allowed here: p TestA", "0 passed, 0 failed, 1 skipped\n"},
		},
		{
			name: "a package that does not build is one failure",
			in: `{"Action":"build-output","ImportPath":"p","Output":"p/x.go:1: syntax error\n"}` + "\n" +
				`{"Action":"fail","Package":"p","FailedBuild":"p"}` + "\n",
			want: []string{"syntax error", "failed: p\n", "0 passed, 1 failed\n"},
		},
		{
			name: "a test that the dying process took along is a failure",
			in:   runA + outA + `{"Action":"output","Package":"p","Output":"panic: elsewhere\n"}` + "\n" + failP,
			want: []string{"noise of A", "panic: elsewhere", "failed: p TestA (did not end)", "0 passed, 1 failed\n"},
		},
		{
			name: "leaks found by TestMain fail the package though its tests passed",
			in:   runA + passA + `{"Action":"output","Package":"p","Output":"goleak: found\n"}` + "\n" + failP,
			want: []string{"goleak: found", "failed: p\n", "1 passed, 1 failed\n"},
		},
		{name: "go test that stopped half way is a failure", in: runA, want: []string{"0 passed, 1 failed\n"}},
		{name: "no test is a failure", in: okP, want: []string{"no test ran", "0 passed, 0 failed\n"}},
		{name: "a package without tests is not", in: `{"Action":"skip","Package":"q"}` + "\n" + runA + passA + okP, ok: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			rep := newReport(&out)
			if err := rep.read(strings.NewReader(tc.in)); err != nil {
				t.Fatal(err)
			}
			rep.close(0)
			if rep.ok() != tc.ok {
				t.Errorf("ok = %t, want %t", rep.ok(), tc.ok)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
			if tc.not != "" && strings.Contains(out.String(), tc.not) {
				t.Errorf("output has %q:\n%s", tc.not, out.String())
			}
		})
	}
}
