package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"gotest.tools/gotestsum/testjson"
)

func scan(t *testing.T, rep *report, in string) {
	t.Helper()
	config := testjson.ScanConfig{Stdout: strings.NewReader(in), Handler: rep, IgnoreNonJSONOutputLines: true}
	if _, err := testjson.ScanTestOutput(config); err != nil {
		t.Fatal(err)
	}
}

func TestReport(t *testing.T) {
	const (
		runA  = `{"Action":"start","Package":"p"}` + "\n" + `{"Action":"run","Package":"p","Test":"TestA"}` + "\n"
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
			want: []string{"failed: p TestA\n    a_test.go:7: panel is wrong:\n        1, and it is 2\ntook 0:00\n"},
		},
		{
			name: "a package that fails outside of its tests, too",
			in:   runA + passA + `{"Action":"output","Package":"p","Output":"panic: elsewhere\n"}` + "\n" + failP,
			want: []string{"failed: p\npanic: elsewhere\n"},
		},
		{
			name: "a skipped test is a failure by name",
			in:   runA + `{"Action":"skip","Package":"p","Test":"TestA"}` + "\n" + okP,
			want: []string{"failed: p TestA\n    it was skipped", "0 passed, 1 failed\n"},
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
			want: []string{"noise of A", "failed: p TestA\n", "0 passed, 2 failed\n"},
		},
		{
			name: "leaks found by TestMain fail the package though its tests passed",
			in:   runA + passA + `{"Action":"output","Package":"p","Output":"goleak: found\n"}` + "\n" + failP,
			want: []string{"goleak: found", "failed: p\n", "1 passed, 1 failed\n"},
		},
		{name: "go test that stopped half way is a failure", in: runA, want: []string{"0 passed, 1 failed\n"}},
		{name: "no test is a failure", in: okP, want: []string{"no test ran", "0 passed, 1 failed\n"}},
		{name: "a package without tests is not", in: `{"Action":"skip","Package":"q"}` + "\n" + runA + passA + okP, ok: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			rep := newReport(&out, time.Now)
			scan(t, rep, tc.in)
			rep.close()
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

// Ten seconds without a line, and it says what go test is doing.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	rep := newReport(&out, func() time.Time { return now })
	for range 11 {
		rep.progress()
		now = now.Add(time.Second)
	}
	if err := rep.Event(testjson.TestEvent{Action: "start", Package: "p"}, &testjson.Execution{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		rep.progress()
		now = now.Add(time.Second)
	}
	if want := "  0:10      0 passed  ...   compiling\n  0:20      0 passed  ...   p\n"; out.String() != want {
		t.Errorf("it says:\n%swant:\n%s", out.String(), want)
	}
}

func TestStuck(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	rep := newReport(&out, func() time.Time { return now })
	now = now.Add(time.Hour)
	if rep.stuck() {
		t.Error("a run that compiles for an hour is ended")
	}
	// An execution that has not ended: its tests are running.
	handle := func(action testjson.Action, test string) {
		if err := rep.Event(testjson.TestEvent{Action: action, Package: "p", Test: test}, &testjson.Execution{}); err != nil {
			t.Fatal(err)
		}
	}
	handle("start", "")
	handle(testjson.ActionRun, "TestA")
	handle(testjson.ActionRun, "TestB")
	handle(testjson.ActionPause, "TestB")
	now = now.Add(patience - time.Second)
	if rep.stuck() {
		t.Error("a run is ended before its time")
	}
	now = now.Add(time.Second)
	if !rep.stuck() {
		t.Error("a run that stands still is not ended")
	}
	if rep.stuck() {
		t.Error("it is ended twice")
	}
	rep.close()
	if text := out.String(); !strings.Contains(text, "    p TestA, for 5:00\n") || strings.Contains(text, "TestB") || !strings.HasSuffix(text, "0 passed, 1 failed\n") {
		t.Errorf("the report is:\n%s", text)
	}
}
